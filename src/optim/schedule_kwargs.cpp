#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/nearest.h>
#include <gradus/optim/schedule_kwargs.h>

#include <algorithm>
#include <cmath>

namespace gradus {

ScheduleKwargs::ScheduleKwargs(std::string schedule, const nlohmann::json& kwargs,
                               std::vector<std::string> known)
    : schedule_(std::move(schedule)),
      kwargs_(kwargs.is_null() ? nlohmann::json::object() : kwargs) {
  if (!kwargs_.is_object()) refuse("expected an object of options, received " + dump_json(kwargs_));
  for (const auto& [key, value] : kwargs_.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw Error("G-SCHED-3", ErrorKind::usage,
                fmt::format("the schedule '{}' has no option '{}'; {}", schedule_, key,
                            known.empty() ? "it takes none"
                                          : fmt::format("it takes {}", fmt::join(known, ", "))),
                did_you_mean(key, known));
  }
}

std::optional<double> ScheduleKwargs::number(const char* key) const {
  const auto* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(key, "a number", *value);
  return value->get<double>();
}

std::optional<int64_t> ScheduleKwargs::integer(const char* key) const {
  const auto value = number(key);
  if (!value) return std::nullopt;
  if (*value != std::floor(*value)) refuse(key, "a whole number", kwargs_.at(key));
  return int64_t(*value);
}

bool ScheduleKwargs::flag(const char* key, bool otherwise) const {
  const auto* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(key, "true or false", *value);
  return value->get<bool>();
}

std::string ScheduleKwargs::choice(const char* key, const std::string& otherwise,
                                   const std::vector<std::string>& choices) const {
  const auto* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string() ||
      std::find(choices.begin(), choices.end(), value->get<std::string>()) == choices.end())
    refuse(key, join_or(choices), *value);
  return value->get<std::string>();
}

std::vector<double> ScheduleKwargs::numbers(const char* key, std::vector<double> otherwise) const {
  const auto* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_number()) return {value->get<double>()};
  const auto is_number = [](const nlohmann::json& item) { return item.is_number(); };
  if (!value->is_array() || value->empty() || !std::all_of(value->begin(), value->end(), is_number))
    refuse(key, "a number or a list of numbers", *value);
  return value->get<std::vector<double>>();
}

void ScheduleKwargs::missing(const std::string& key) const { refuse("'" + key + "' is required"); }

void ScheduleKwargs::refuse(const std::string& what) const {
  throw Error("G-SCHED-4", ErrorKind::usage, "lr_scheduler_kwargs of '" + schedule_ + "': " + what);
}

void ScheduleKwargs::refuse(const char* key, const std::string& expected,
                            const nlohmann::json& received) const {
  refuse("'" + std::string(key) + "' must be " + expected + ", received " + dump_json(received));
}

const nlohmann::json* ScheduleKwargs::find(const char* key) const {
  const auto found = kwargs_.find(key);
  return found == kwargs_.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace gradus
