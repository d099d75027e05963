#include <gradus/core/printable.h>

#include <algorithm>
#include <cstdint>

namespace gradus {
namespace {

struct DecodedCharacter {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: not UTF-8
};

DecodedCharacter decode_first(std::string_view text) {
  const auto byte = [&](size_t i) { return uint32_t(static_cast<unsigned char>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t count = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < count) return {};
  uint32_t code = lead & (0x7fu >> count);
  for (size_t i = 1; i < count; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kSmallest[count] || code > 0x10ffff || surrogate) return {};
  return {code, count};
}

/// Marks of direction, line separators, and the character that older terminals take for nothing.
bool rearranges_text(uint32_t code) {
  return code == 0x061c || code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

void append_escape(std::string& out, char kind, uint32_t value, int digits) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += '\\';
  out += kind;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kDigits[(value >> shift) & 0xf];
}

bool is_plain(char c) { return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t'; }

}  // namespace

std::string printable(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string out;
  out.reserve(text.size() + 16);
  while (!text.empty()) {
    const auto [code, bytes] = decode_first(text);
    if (bytes == 0) {
      append_escape(out, 'x', static_cast<unsigned char>(text[0]), 2);
    } else if (bytes > 1 && rearranges_text(code)) {
      append_escape(out, 'u', code, 4);
    } else if (bytes == 1 ? is_plain(text[0]) : code >= 0xa0) {
      out.append(text.substr(0, bytes));
    } else {
      append_escape(out, 'x', code, 2);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out;
}

}  // namespace gradus
