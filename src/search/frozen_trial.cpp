#include <gradus/core/error.h>
#include <gradus/search/frozen_trial.h>

namespace gradus::search {
namespace {

constexpr const char* kStateNames[] = {"RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING"};

}  // namespace

const char* state_name(TrialState state) { return kStateNames[size_t(state)]; }

TrialState state_of_name(const std::string& name) {
  for (size_t i = 0; i < std::size(kStateNames); ++i)
    if (name == kStateNames[i]) return TrialState(i);
  throw Error("G-SEARCH-2", ErrorKind::data,
              "the study holds a trial with the state '" + name + "', which is unknown");
}

Direction parse_direction(const std::string& text) {
  if (text == "minimize") return Direction::minimize;
  if (text == "maximize") return Direction::maximize;
  throw Error("G-SEARCH-3", ErrorKind::usage,
              "the direction of a search is 'minimize' or 'maximize', received '" + text + "'",
              "Minimize a loss, maximize an accuracy.");
}

nlohmann::json FrozenTrial::params() const {
  auto all = nlohmann::json::object();
  for (const auto& [name, number] : numbers) all[name] = distributions.at(name).value_of(number);
  return all;
}

std::optional<int64_t> FrozenTrial::last_step() const {
  if (intermediate_values.empty()) return std::nullopt;
  return intermediate_values.rbegin()->first;
}

}  // namespace gradus::search
