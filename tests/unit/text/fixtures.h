#pragma once

#include <gradus/core/json.h>
#include <gradus/text/tokenizer.h>

#include <filesystem>

namespace gradus {

/// Made by tests/parity/text/make_fixtures.py.
inline std::filesystem::path text_fixture(const std::string& name) {
  return std::filesystem::path(GRADUS_SOURCE_DIR) / "tests/parity/text/fixtures" / name;
}

inline EncodeOptions encode_options(const nlohmann::json& given) {
  EncodeOptions options;
  if (given.contains("max_length")) options.max_length = given["max_length"].get<int64_t>();
  if (given.contains("truncation")) {
    const auto& value = given["truncation"];
    options.truncation =
        value.is_boolean() ? Truncation(value.get<bool>()) : Truncation(value.get<std::string>());
  }
  options.add_special_tokens = given.value("add_special_tokens", true);
  options.stride = given.value("stride", int64_t{0});
  options.return_overflowing_tokens = given.value("return_overflowing_tokens", false);
  if (given.contains("padding")) options.padding = given["padding"].get<std::string>();
  return options;
}

}  // namespace gradus
