#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace gradus::config {

/// What `to_dict` shows in place of the value of an option whose name ends with `_token`, as in
/// transformers: `<HUB_TOKEN>`. Empty for other options.
inline std::string hidden_form(std::string_view name) {
  if (!name.ends_with("_token")) return "";
  std::string upper(name);
  std::ranges::transform(upper, upper.begin(),
                         [](unsigned char c) { return char(std::toupper(c)); });
  return "<" + upper + ">";
}

}  // namespace gradus::config
