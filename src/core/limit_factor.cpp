#include "core/limit_factor.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace gradus {

uint64_t limit_factor() {
  static const uint64_t factor = [] {
    const char* given = std::getenv("GRADUS_LIMIT_FACTOR");
    const std::string_view text = given == nullptr ? "" : given;
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return whole && value > 0 && value <= 1'000'000 ? value : 1;
  }();
  return factor;
}

}  // namespace gradus
