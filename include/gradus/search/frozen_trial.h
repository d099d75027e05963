#pragma once

#include <gradus/search/distribution.h>

#include <map>

namespace gradus::search {

/// How far a trial is.
enum class TrialState {
  running,   ///< Somebody trains it, or was killed while doing so.
  complete,  ///< It has its value.
  pruned,    ///< It was stopped early, because others were better at the same point.
  fail,      ///< It ended with an error.
  waiting    ///< Optuna's: its parameters are given, nobody has begun it.
};

/// The word of a state in a study: "RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING".
const char* state_name(TrialState state);
/// The state of that word. Throws `Error` G-SEARCH-2.
TrialState state_of_name(const std::string& name);

/// Which end of the objective is the good one.
enum class Direction {
  minimize,  ///< A smaller value is better.
  maximize   ///< A greater value is better.
};

/// "minimize" or "maximize". Throws `Error` G-SEARCH-3 for anything else.
Direction parse_direction(const std::string& text);

/// A trial as the study holds it: a copy that nothing changes.
struct FrozenTrial {
  int64_t id = 0;                              ///< Its key in the file.
  int64_t number = 0;                          ///< Counts the trials of the study from 0.
  TrialState state = TrialState::running;      ///< How far it is.
  std::optional<double> value = {};            ///< What the objective was.
  std::map<std::string, double> numbers = {};  ///< The numbers of its parameters.
  std::map<std::string, Distribution> distributions = {};  ///< Where they were drawn from.
  std::map<int64_t, double> intermediate_values = {};      ///< What was reported, by step.
  nlohmann::json user_attrs = nlohmann::json::object();    ///< What users noted.
  nlohmann::json system_attrs = nlohmann::json::object();  ///< What samplers and pruners noted.

  /// The parameters with their values, as a user sees them.
  nlohmann::json params() const;
  /// The last step that was reported; unset when none was.
  std::optional<int64_t> last_step() const;
  /// Whether nothing more will happen to it.
  bool is_finished() const { return state != TrialState::running && state != TrialState::waiting; }
};

}  // namespace gradus::search
