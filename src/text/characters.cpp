#include "text/characters.h"

#include "text/backend.h"

namespace gradus::text {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

// The code point that begins at `place`, which moves behind it.
char32_t next_code_point(std::string_view text, size_t& place) {
  const auto first = static_cast<unsigned char>(text[place++]);
  if (first < 0x80) return first;
  const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  if (first < 0xC2 || first > 0xF4) return kReplacement;
  char32_t value = first & (0x3F >> more);
  for (int i = 0; i < more; ++i) {
    const auto next = place < text.size() ? static_cast<unsigned char>(text[place]) : 0;
    if ((next & 0xC0) != 0x80) return kReplacement;
    value = value << 6 | (next & 0x3F);
    ++place;
  }
  return value;
}

void append_utf8(std::string& out, char32_t c) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    tail(12), tail(6), tail(0);
  }
}

bool is_ascii(char32_t c) { return c < 0x80; }
bool ascii_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool ascii_upper(char32_t c) { return c >= 'A' && c <= 'Z'; }
bool ascii_lower(char32_t c) { return c >= 'a' && c <= 'z'; }

}  // namespace

std::u32string code_points(std::string_view utf8) {
  std::u32string text;
  text.reserve(utf8.size());
  for (size_t place = 0; place < utf8.size();) text += next_code_point(utf8, place);
  return text;
}

std::string utf8_of(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const auto c : text) append_utf8(out, c);
  return out;
}

bool is_space(char32_t c) {
  if (is_ascii(c)) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word(char32_t c) {
  if (is_ascii(c)) return ascii_digit(c) || ascii_upper(c) || ascii_lower(c) || c == '_';
  return (character_class(c) & 1) != 0;
}

bool is_unicode_word(char32_t c) {
  return is_ascii(c) ? is_word(c) : (character_class(c) & 16) != 0;
}

bool is_digit(char32_t c) { return is_ascii(c) ? ascii_digit(c) : (character_class(c) & 2) != 0; }

bool is_upper(char32_t c) { return is_ascii(c) ? ascii_upper(c) : (character_class(c) & 4) != 0; }

bool is_lower(char32_t c) { return is_ascii(c) ? ascii_lower(c) : (character_class(c) & 8) != 0; }

std::u32string_view strip_left(std::u32string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return text;
}

std::u32string_view strip_right(std::u32string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::u32string_view strip(std::u32string_view text) { return strip_left(strip_right(text)); }

std::string stripped(std::string_view utf8) { return utf8_of(strip(code_points(utf8))); }

std::vector<std::string> words_of(std::string_view utf8) {
  const auto text = code_points(utf8);
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    if (is_space(text[begin])) {
      ++begin;
      continue;
    }
    auto end = begin;
    while (end < text.size() && !is_space(text[end])) ++end;
    words.push_back(utf8_of(std::u32string_view(text).substr(begin, end - begin)));
    begin = end;
  }
  return words;
}

}  // namespace gradus::text
