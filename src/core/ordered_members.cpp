#include "core/ordered_members.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gradus {

void OrderedMembers::set(nlohmann::ordered_json& object, std::string name,
                         nlohmann::ordered_json value) {
  constexpr size_t kFew = 16;  // looking at all of them is faster than a table
  auto& members = object.get_ref<nlohmann::ordered_json::object_t&>();
  auto found = members.end();
  if (members.size() < kFew) {
    found = std::find_if(members.begin(), members.end(),
                         [&](const auto& member) { return member.first == name; });
  } else {
    for (auto i = places_.size(); i < members.size(); ++i)
      places_.emplace(std::next(members.begin(), std::ptrdiff_t(i))->first, i);
    if (const auto place = places_.find(name); place != places_.end())
      found = std::next(members.begin(), std::ptrdiff_t(place->second));
  }
  if (found != members.end()) {
    found->second = std::move(value);
    return;
  }
  // The vector itself copies whole trees when it grows: names are const, so pairs cannot be moved.
  if (members.size() == members.capacity()) {
    nlohmann::ordered_json::object_t larger;
    larger.reserve(std::max<size_t>(4, 2 * members.size()));
    for (auto& member : members) larger.emplace_back(member.first, std::move(member.second));
    members.swap(larger);
  }
  members.emplace_back(std::move(name), std::move(value));
}

}  // namespace gradus
