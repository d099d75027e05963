#pragma once

#include <gradus_tokenizers_c.h>

#include <optional>
#include <string>
#include <string_view>

namespace gradus::text {

inline gtc_span span_of(std::string_view text) { return {text.data(), text.size()}; }

/// The error text of a call, or nothing; frees it.
inline std::optional<std::string> error_of(char* error) {
  if (error == nullptr) return std::nullopt;
  std::string text(error);
  gtc_string_free(error);
  return text;
}

}  // namespace gradus::text
