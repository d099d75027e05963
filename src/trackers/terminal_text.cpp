#include "trackers/terminal_text.h"

#include <clocale>
#include <cwchar>

#include <locale.h>

namespace gradus {
namespace {

// Makes this thread see text as UTF-8 for a while, whatever the program's locale is. Where the
// system has no such locale, every character outside ASCII is taken for one column.
class Utf8Scope {
 public:
  Utf8Scope() : before_(utf8() == nullptr ? nullptr : ::uselocale(utf8())) {}
  ~Utf8Scope() {
    if (before_ != nullptr) ::uselocale(before_);
  }
  Utf8Scope(const Utf8Scope&) = delete;
  Utf8Scope& operator=(const Utf8Scope&) = delete;

 private:
  static locale_t utf8() {
    static const locale_t locale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    return locale;
  }

  locale_t before_;
};

struct Character {
  size_t bytes;
  size_t columns;
};

Character first_character(std::string_view text) {
  wchar_t wide = 0;
  std::mbstate_t state{};
  const size_t bytes = std::mbrtowc(&wide, text.data(), text.size(), &state);
  if (bytes == 0) return {1, 0};
  if (bytes <= text.size()) {
    const int columns = ::wcwidth(wide);
    return {bytes, columns < 0 ? 0 : size_t(columns)};
  }
  size_t end = 1;  // not UTF-8, or no locale for it
  while (end < text.size() && (uint8_t(text[end]) & 0xc0) == 0x80) ++end;
  return {end, 1};
}

}  // namespace

size_t display_width(std::string_view text) {
  const Utf8Scope utf8;
  size_t width = 0;
  while (!text.empty()) {
    const auto character = first_character(text);
    width += character.columns;
    text.remove_prefix(character.bytes);
  }
  return width;
}

std::string_view cut_to_width(std::string_view text, size_t columns) {
  const Utf8Scope utf8;
  size_t end = 0, width = 0;
  while (end < text.size()) {
    const auto character = first_character(text.substr(end));
    if (width + character.columns > columns) break;
    width += character.columns;
    end += character.bytes;
  }
  return text.substr(0, end);
}

}  // namespace gradus
