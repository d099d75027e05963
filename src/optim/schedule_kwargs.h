#pragma once

#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/nearest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

inline std::string number_text(double value) { return json_number(value); }

/// `lr_scheduler_kwargs` of one schedule: checks names when made, types when read. JSON null is
/// "not given".
class ScheduleKwargs {
 public:
  ScheduleKwargs(std::string schedule, const nlohmann::json& json, std::vector<std::string> known)
      : schedule_(std::move(schedule)), json_(json.is_null() ? nlohmann::json::object() : json) {
    if (!json_.is_object()) refuse("expected an object of options, received " + dump_json(json_));
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const auto hint = did_you_mean(key, known);
      throw Error("G-SCHED-3", ErrorKind::usage,
                  "the schedule '" + schedule_ + "' has no option '" + key + "'; " +
                      (known.empty() ? "it takes none" : "it takes " + listed(known)),
                  hint);
    }
  }

  std::optional<double> number(const char* key) const {
    const auto* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) refuse(key, "a number", *value);
    return value->get<double>();
  }
  double number(const char* key, double otherwise) const { return number(key).value_or(otherwise); }

  std::optional<int64_t> integer(const char* key) const {
    const auto value = number(key);
    if (!value) return std::nullopt;
    if (*value != std::floor(*value)) refuse(key, "a whole number", json_.at(key));
    return int64_t(*value);
  }

  bool flag(const char* key, bool otherwise) const {
    const auto* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) refuse(key, "true or false", *value);
    return value->get<bool>();
  }

  std::string choice(const char* key, const std::string& otherwise,
                     const std::vector<std::string>& choices) const {
    const auto* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string() ||
        std::find(choices.begin(), choices.end(), value->get<std::string>()) == choices.end())
      refuse(key, join_or(choices), *value);
    return value->get<std::string>();
  }

  std::vector<double> numbers(const char* key, std::vector<double> otherwise) const {
    const auto* value = find(key);
    if (value == nullptr) return otherwise;
    if (value->is_number()) return {value->get<double>()};
    const auto is_number = [](const nlohmann::json& item) { return item.is_number(); };
    if (!value->is_array() || value->empty() ||
        !std::all_of(value->begin(), value->end(), is_number))
      refuse(key, "a number or a list of numbers", *value);
    return value->get<std::vector<double>>();
  }

  [[noreturn]] void missing(const std::string& key) const { refuse("'" + key + "' is required"); }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error("G-SCHED-4", ErrorKind::usage,
                "lr_scheduler_kwargs of '" + schedule_ + "': " + what);
  }

 private:
  [[noreturn]] void refuse(const char* key, const std::string& expected,
                           const nlohmann::json& received) const {
    refuse("'" + std::string(key) + "' must be " + expected + ", received " + dump_json(received));
  }
  const nlohmann::json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  static std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
  }

  std::string schedule_;
  nlohmann::json json_;
};

}  // namespace gradus
