#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// `lr_scheduler_kwargs` of one schedule: a dictionary such as {"num_cycles": 2}.
///
/// Names are checked when it is made, values when they are read. JSON null counts as not given.
/// Throws `Error` G-SCHED-3 for an unknown name, with those known and the nearest, and G-SCHED-4
/// for a value that cannot be used.
class ScheduleKwargs {
 public:
  /// `schedule` is named in messages; `known` are the settings it takes. `kwargs` is an object or
  /// null.
  ScheduleKwargs(std::string schedule, const nlohmann::json& kwargs,
                 std::vector<std::string> known);

  /// A number; unset when it was not given.
  std::optional<double> number(const char* key) const;
  /// A number, or `otherwise`.
  double number(const char* key, double otherwise) const { return number(key).value_or(otherwise); }
  /// A whole number; unset when it was not given.
  std::optional<int64_t> integer(const char* key) const;
  /// True or false.
  bool flag(const char* key, bool otherwise) const;
  /// One of `choices`.
  std::string choice(const char* key, const std::string& otherwise,
                     const std::vector<std::string>& choices) const;
  /// A list of numbers; a single number is a list of one.
  std::vector<double> numbers(const char* key, std::vector<double> otherwise) const;

  /// Throws: the setting is required.
  [[noreturn]] void missing(const std::string& key) const;
  /// Throws with `what` as the reason: for what only the schedule itself can tell.
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  [[noreturn]] void refuse(const char* key, const std::string& expected,
                           const nlohmann::json& received) const;
  const nlohmann::json* find(const char* key) const;

  std::string schedule_;
  nlohmann::json kwargs_;
};

}  // namespace gradus
