#include "runs/log_line.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string>

namespace gradus::runs {
namespace {

void skip_spaces(std::string_view& rest) {
  while (!rest.empty() && (rest.front() == ' ' || rest.front() == '\t' || rest.front() == '\r'))
    rest.remove_prefix(1);
}

bool take_letter(std::string_view& rest, char letter) {
  if (rest.empty() || rest.front() != letter) return false;
  rest.remove_prefix(1);
  return true;
}

bool take_word(std::string_view& rest, std::string_view word) {
  if (!rest.starts_with(word)) return false;
  rest.remove_prefix(word.size());
  return true;
}

/// A text without its quotes, of which the first is taken already. Escapes stay as they are.
bool take_text(std::string_view& rest, std::string_view& text) {
  for (size_t end = 0; end < rest.size(); ++end) {
    if (rest[end] == '\\') {
      ++end;
    } else if (rest[end] == '"') {
      text = rest.substr(0, end);
      rest.remove_prefix(end + 1);
      return true;
    }
  }
  return false;
}

bool take_value(std::string_view& rest, LogMember& member) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  member.is_number = true;
  if (rest.empty()) return false;
  switch (rest.front()) {
    case '"': {
      member.is_number = false;
      rest.remove_prefix(1);
      std::string_view text;
      return take_text(rest, text);
    }
    case 'N':
      member.value = std::numeric_limits<double>::quiet_NaN();
      return take_word(rest, "NaN");
    case 'I': member.value = kInfinity; return take_word(rest, "Infinity");
    case 't': member.value = 1; return take_word(rest, "true");
    case 'f': member.value = 0; return take_word(rest, "false");
    case 'n': member.is_number = false; return take_word(rest, "null");
    default: break;
  }
  if (rest.starts_with("-I")) {
    member.value = -kInfinity;
    return take_word(rest, "-Infinity");
  }
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), member.value);
  if (error == std::errc::result_out_of_range)  // strtod says which end it is out of
    member.value = std::strtod(std::string(rest.data(), end).c_str(), nullptr);
  else if (error != std::errc())
    return false;
  rest.remove_prefix(size_t(end - rest.data()));
  return true;
}

}  // namespace

bool take_log_member(std::string_view& rest, LogMember& member) {
  skip_spaces(rest);
  member.is_end = take_letter(rest, '}');
  if (member.is_end) return true;
  if (take_letter(rest, ',')) skip_spaces(rest);
  if (!take_letter(rest, '"') || !take_text(rest, member.key)) return false;
  if (member.key.find('\\') != std::string_view::npos) return false;
  skip_spaces(rest);
  if (!take_letter(rest, ':')) return false;
  skip_spaces(rest);
  return take_value(rest, member);
}

}  // namespace gradus::runs
