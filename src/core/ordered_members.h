#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>

namespace gradus {

/// Adds members to an object in linear time; `ordered_json` itself compares a new name with all
/// that are there. One instance goes with one object for as long as it grows.
class OrderedMembers {
 public:
  /// Sets a member of `object`. Of a name that comes twice the last value counts, at the place of
  /// the first, as in Python.
  void set(nlohmann::ordered_json& object, std::string name, nlohmann::ordered_json value);

 private:
  std::unordered_map<std::string, size_t> places_;  // of members, once there are many
};

}  // namespace gradus
