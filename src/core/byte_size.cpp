#include <gradus/core/byte_size.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace gradus {
namespace {

constexpr std::string_view kSpaces = " \t\n\r\f\v";
constexpr double kMostBytes = 9.2e18;  // fits a signed 64-bit number

std::string_view without_spaces(std::string_view text) {
  const auto first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

/// Takes `letter` off the end of `text`, in either case.
bool take_off(std::string_view& text, char letter) {
  if (text.empty() || std::toupper(static_cast<unsigned char>(text.back())) != letter) return false;
  text.remove_suffix(1);
  return true;
}

/// Takes the unit off the end of `text` and gives its bytes. 0 for a unit that there
/// is not ("iB").
double take_unit(std::string_view& text) {
  if (!take_off(text, 'B')) return 1;
  const double base = take_off(text, 'I') ? 1024 : 1000;
  int power = 0;
  for (const char letter : {'K', 'M', 'G', 'T'}) {
    ++power;
    if (take_off(text, letter)) return std::pow(base, power);
  }
  return base == 1000 ? 1 : 0;
}

}  // namespace

std::optional<uint64_t> parse_byte_size(std::string_view text) {
  auto number = without_spaces(text);
  const double unit = take_unit(number);
  number = without_spaces(number);
  double value = 0;
  const auto* const end = number.data() + number.size();
  const auto [stop, code] = std::from_chars(number.data(), end, value);
  const double bytes = value * unit;
  if (code != std::errc{} || stop != end || !(bytes >= 1 && bytes < kMostBytes))
    return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

std::string format_byte_size(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text,
                unit == 0    ? "%.0f %s"
                : bytes < 10 ? "%.2f %s"
                             : "%.1f %s",
                bytes, kUnits[unit]);
  return text;
}

}  // namespace gradus
