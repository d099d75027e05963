#pragma once

#include <gradus/core/error.h>

#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// Throws `Error` G-REG-1: `function` was given a name that is taken.
[[noreturn]] void throw_registered_twice(const std::string& function, const std::string& name);
/// Throws `Error` G-REG-2 when a name is empty or nothing is there that could make the thing.
void check_registration(const std::string& function, const std::string& name, bool has_maker);

/// The table of one noun: the built-in entries, then those of users, in the order they were added.
///
/// `Entry` has a `name` and `make`, a function. An entry without `make` is a name that transformers
/// knows and gradus does not have yet; registering it fills the gap.
/// Thread-safety: all functions may be called from any thread. What they return is a copy.
template <class Entry>
class Registry {
 public:
  /// `function` is the public function that adds to this table, for messages.
  Registry(std::string function, std::vector<Entry> builtin)
      : function_(std::move(function)), entries_(std::move(builtin)) {}

  /// Throws G-REG-1 when the name is taken, G-REG-2 when the entry is not complete.
  void add(Entry entry) {
    check_registration(function_, entry.name, bool(entry.make));
    const std::lock_guard lock(mutex_);
    for (auto& present : entries_) {
      if (present.name != entry.name) continue;
      if (present.make) throw_registered_twice(function_, entry.name);
      present = std::move(entry);
      return;
    }
    entries_.push_back(std::move(entry));
  }

  /// Also finds names that nothing can be made of yet: see `make`.
  std::optional<Entry> find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    for (const auto& entry : entries_)
      if (entry.name == name) return entry;
    return std::nullopt;
  }

  /// The names of what can be made.
  std::vector<std::string> names() const {
    return names_where([](const Entry& entry) { return bool(entry.make); });
  }
  /// The names that gradus does not have yet.
  std::vector<std::string> missing_names() const {
    return names_where([](const Entry& entry) { return !entry.make; });
  }

 private:
  template <class Wanted>
  std::vector<std::string> names_where(Wanted wanted) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& entry : entries_)
      if (wanted(entry)) names.push_back(entry.name);
    return names;
  }

  std::string function_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace gradus
