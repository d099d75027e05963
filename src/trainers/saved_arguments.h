#pragma once

#include <nlohmann/json.hpp>

namespace gradus {

/// What a checkpoint keeps of a trainer's arguments: all of its own, with the values that the
/// common ones have now.
template <class Arguments>
nlohmann::ordered_json saved_arguments(const Arguments& own, const nlohmann::ordered_json& common) {
  auto all = own.to_dict();
  for (const auto& [name, value] : common.items()) all[name] = value;
  return all;
}

}  // namespace gradus
