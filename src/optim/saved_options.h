#pragma once

#include <gradus/core/state_tree.h>

#include <array>
#include <optional>

/// Reading the settings of a saved group. A key that is missing leaves the value as it is:
/// files of older and newer versions differ in a few keys.
namespace gradus::saved {

inline void take(const StateTree& group, const char* key, double& value) {
  if (const auto* found = group.find(std::string(key)); found != nullptr && !found->is_none())
    value = found->as_double();
}

inline void take(const StateTree& group, const char* key, int64_t& value) {
  if (const auto* found = group.find(std::string(key)); found != nullptr && !found->is_none())
    value = found->as_int();
}

inline void take(const StateTree& group, const char* key, bool& value) {
  if (const auto* found = group.find(std::string(key)); found != nullptr && !found->is_none())
    value = found->as_bool();
}

inline void take(const StateTree& group, const char* key, std::string& value) {
  if (const auto* found = group.find(std::string(key)); found != nullptr && !found->is_none())
    value = found->as_string();
}

template <class T>
void take(const StateTree& group, const char* key, std::optional<T>& value) {
  const auto* found = group.find(std::string(key));
  if (found == nullptr) return;
  if (found->is_none()) return value.reset();
  T inner{};
  take(group, key, inner);
  value = inner;
}

template <size_t N>
void take(const StateTree& group, const char* key, std::array<double, N>& value) {
  const auto* found = group.find(std::string(key));
  if (found == nullptr || found->items().size() != N) return;
  for (size_t i = 0; i < N; ++i) value[i] = found->items()[i].as_double();
}

inline void take(const StateTree& group, const char* key, std::vector<double>& value) {
  const auto* found = group.find(std::string(key));
  if (found == nullptr) return;
  value.clear();
  for (const auto& item : found->items()) value.push_back(item.as_double());
}

template <class T>
StateTree or_none(const std::optional<T>& value) {
  return value ? StateTree(*value) : StateTree();
}

template <class Container>
StateTree list_of(const Container& values) {
  auto list = StateTree::list();
  for (const auto& value : values) list.push(value);
  return list;
}

template <size_t N>
StateTree tuple_of(const std::array<double, N>& values) {
  StateTree::Tuple tuple;
  for (double value : values) tuple.items.emplace_back(value);
  return tuple;
}

}  // namespace gradus::saved
