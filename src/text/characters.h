#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Texts as Python sees them: sequences of code points, with Python's idea of a space, a word
/// character, a digit and a capital letter. The metrics of the Python world are defined by these.
/// Pure functions; safe from any thread.
namespace gradus::text {

/// The code points of UTF-8 text. A byte that is no part of a character becomes U+FFFD.
std::u32string code_points(std::string_view utf8);
/// Back to UTF-8.
std::string utf8_of(std::u32string_view text);

/// `str.isspace()` of one character, which is also `\s`.
bool is_space(char32_t character);
/// `\w`: letters, numbers and the underscore.
bool is_word(char32_t character);
/// `\w` as Unicode defines it and the package `regex` has it: with marks, without fractions.
bool is_unicode_word(char32_t character);
/// `\d`: decimal digits of any script.
bool is_digit(char32_t character);
/// `str.isupper()` of one character.
bool is_upper(char32_t character);
/// `str.islower()` of one character.
bool is_lower(char32_t character);

/// `str.strip()`.
std::u32string_view strip(std::u32string_view text);
/// `str.lstrip()` and `str.rstrip()`.
std::u32string_view strip_left(std::u32string_view text);
std::u32string_view strip_right(std::u32string_view text);
/// `str.strip()` of UTF-8 text.
std::string stripped(std::string_view utf8);
/// `str.split()`: the words between spaces.
std::vector<std::string> words_of(std::string_view utf8);

}  // namespace gradus::text
