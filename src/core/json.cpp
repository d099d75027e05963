#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "core/limit_factor.h"
#include "core/parsed_json.h"

namespace gradus {
namespace {

// Bare NaN and Infinity are not JSON. They travel through the strict parser as marked strings.
constexpr std::string_view kMark = "\\u0000gradus:";
const std::string kParsedMark = std::string(1, '\0') + "gradus:";

struct Special {
  std::string_view word;
  double value;
};
const Special kSpecials[] = {{"-Infinity", -INFINITY}, {"Infinity", INFINITY}, {"NaN", NAN}};

std::string mark_specials(std::string_view text) {
  std::string marked;
  marked.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\' && i + 1 < text.size()) {
      marked += text[i++];
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string && (text[i] == 'N' || text[i] == 'I' || text[i] == '-')) {
      const Special* found = nullptr;
      for (const auto& special : kSpecials)
        if (text.substr(i, special.word.size()) == special.word) found = &special;
      if (found != nullptr && (found->word[0] != 'I' || i == 0 || text[i - 1] != '-')) {
        marked.append("\"").append(kMark).append(found->word).append("\"");
        i += found->word.size() - 1;
        continue;
      }
    }
    marked += text[i];
  }
  return marked;
}

template <class Json>
void unmark_specials(Json& value) {
  if (value.is_structured()) {
    for (auto& child : value) unmark_specials(child);
  } else if (value.is_string() &&
             value.template get_ref<const std::string&>().starts_with(kParsedMark)) {
    const auto word = value.template get_ref<const std::string&>().substr(kParsedMark.size());
    for (const auto& special : kSpecials)
      if (word == special.word) value = special.value;
  }
}

std::string line_and_column(std::string_view text, size_t byte) {
  byte = std::min(byte, text.size());
  const auto head = text.substr(0, byte);
  const auto line = 1 + std::count(head.begin(), head.end(), '\n');
  const auto last_break = head.rfind('\n');
  const auto column = last_break == std::string_view::npos ? byte : byte - last_break - 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// Everything that walks a document recurses; Python's parser gives up at about this depth too.
constexpr int kMaxDepth = 1000;
// What a parsed value takes while its list grows, and what a member takes besides.
constexpr uint64_t kBytesOfValue = 48, kBytesOfMember = 96;
// "0,0,0" takes 24 times its size. Documents that somebody wrote stay below the second limit.
constexpr uint64_t kFreeBytes = uint64_t{512} << 20, kMostPerByte = 8;

// Where memory runs out inside the parsed value, its destructor ends the process: so beforehand.
void check_memory(std::string_view text, uint64_t values, uint64_t members,
                  const std::string& where) {
  const auto needed = values * kBytesOfValue + members * kBytesOfMember;
  const auto most = std::max<uint64_t>(kFreeBytes, kMostPerByte * text.size()) * limit_factor();
  if (needed <= most) return;
  throw Error("G-JSON-1", ErrorKind::data,
              where + " is not usable JSON: its " + std::to_string(values) + " values take about " +
                  std::to_string(needed >> 20) + " MiB, at most " + std::to_string(most >> 20) +
                  " MiB are allowed for " + std::to_string(text.size() >> 20) + " MiB of text",
              "The file is damaged, or was not meant for this option. GRADUS_LIMIT_FACTOR=4 in the "
              "environment allows four times as much.");
}

void check_depth_and_memory(std::string_view text, const std::string& where) {
  int depth = 0;
  uint64_t values = 0, members = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
    } else if (c == ',') {
      ++values;
    } else if (c == ':') {
      ++members;
    } else if (c == '[' || c == '{') {
      ++values;
      if (++depth > kMaxDepth)
        throw Error("G-JSON-1", ErrorKind::data,
                    where + " is not usable JSON at " + line_and_column(text, i + 1) +
                        ": nested deeper than " + std::to_string(kMaxDepth) + " levels",
                    "The file is damaged, or was not meant for this option.");
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  check_memory(text, values, members, where);
}

void append_hex4(std::string& out, unsigned unit) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[(unit >> shift) & 0xf];
}

// Decodes one UTF-8 code point; a broken byte becomes U+FFFD, as Python's "replace" does.
unsigned next_code_point(std::string_view text, size_t& i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned lead = byte(i++);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : -1;
  if (more < 0 || i + size_t(more) > text.size()) return 0xfffd;
  unsigned code = lead & (0x3fu >> more);
  for (int k = 0; k < more; ++k) {
    if ((byte(i) & 0xc0) != 0x80) return 0xfffd;
    code = (code << 6) | (byte(i++) & 0x3f);
  }
  return code;
}

void append_string(std::string& out, std::string_view text) {
  out += '"';
  for (size_t i = 0; i < text.size();) {
    const unsigned code = next_code_point(text, i);
    switch (code) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (code >= 0x20 && code < 0x7f) {
          out += char(code);
        } else if (code < 0x10000) {
          append_hex4(out, code);
        } else {
          append_hex4(out, 0xd800 + ((code - 0x10000) >> 10));
          append_hex4(out, 0xdc00 + ((code - 0x10000) & 0x3ff));
        }
    }
  }
  out += '"';
}

template <class Json>
void append_value(std::string& out, const Json& value, int indent, int depth) {
  const auto line_break = [&](int level) {
    if (indent < 0) return;
    out += '\n';
    out.append(size_t(indent * level), ' ');
  };
  const char* separator = indent < 0 ? ", " : ",";
  if (value.is_object() || value.is_array()) {
    out += value.is_object() ? '{' : '[';
    bool first = true;
    for (auto it = value.begin(); it != value.end(); ++it) {
      if (!std::exchange(first, false)) out += separator;
      line_break(depth + 1);
      if (value.is_object()) {
        append_string(out, it.key());
        out += ": ";
      }
      append_value(out, *it, indent, depth + 1);
    }
    if (!first) line_break(depth);
    out += value.is_object() ? '}' : ']';
  } else if (value.is_string()) {
    append_string(out, value.template get_ref<const std::string&>());
  } else if (value.is_number_float()) {
    out += json_number(value.template get<double>());
  } else {
    out += value.dump();
  }
}

}  // namespace

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char buffer[40];
  const double magnitude = std::abs(value);
  // Python switches to the exponent form below 1e-4 and from 1e16 on.
  const bool plain = value == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

namespace {

// `Json` by `parse`, one of the two of core/parsed_json.h.
template <class Json>
Json parsed_as(std::string_view text, const std::string& where, Json (*parse)(std::string_view)) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  check_depth_and_memory(text, where);
  try {
    return parse(text);
  } catch (const nlohmann::json::parse_error&) {
    // Rare: once more with NaN and Infinity marked.
  } catch (const nlohmann::json::exception& error) {
    throw Error("G-JSON-1", ErrorKind::data, where + " is not valid JSON: " + error.what(),
                "Numbers must fit a 64-bit double.");
  }
  const auto marked = mark_specials(text);
  try {
    auto value = parse(marked);
    unmark_specials(value);
    return value;
  } catch (const nlohmann::json::parse_error& error) {
    throw Error("G-JSON-1", ErrorKind::data,
                where + " is not valid JSON at " + line_and_column(marked, error.byte) +
                    ": expected a JSON value, received something else",
                "The parser says: " + std::string(error.what()));
  } catch (const nlohmann::json::exception& error) {
    throw Error("G-JSON-1", ErrorKind::data, where + " is not valid JSON: " + error.what());
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  return parsed_as(text, where, strict_json);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where) {
  return parsed_as(text, where, strict_ordered_json);
}

nlohmann::json read_json(const std::filesystem::path& file) {
  return parse_json(read_file(file), file.string());
}

std::string dump_json(const nlohmann::json& value, int indent) {
  std::string out;
  append_value(out, value, indent, 0);
  return out;
}

std::string dump_json(const nlohmann::ordered_json& value, int indent) {
  std::string out;
  append_value(out, value, indent, 0);
  return out;
}

}  // namespace gradus
