#pragma once

#include <gradus/search/frozen_trial.h>

#include <filesystem>

namespace gradus::search {

/// A study as its file holds it, for those who only look: curves, tables.
struct RecordedStudy {
  std::string name;
  Direction direction = Direction::minimize;
  nlohmann::json user_attrs = nlohmann::json::object();  ///< What users noted of the study.
  std::vector<FrozenTrial> trials = {};                  ///< In the order of their numbers.

  /// Where the complete trial with the best value is in `trials`; unset when none is complete.
  std::optional<size_t> best() const;
  /// The best value of each trial and those before it; NaN before the first that is complete.
  std::vector<double> best_so_far() const;
  /// Whether `value` is better than `than`.
  bool is_better(double value, double than) const {
    return direction == Direction::minimize ? value < than : value > than;
  }
};

/// Whether somebody still works on a trial, as far as can be seen from this machine.
bool is_under_way(const FrozenTrial& trial);

/// The studies with one objective in a file, ours or Optuna's, by name; none where the file has
/// other tables. Nothing is written; a process that writes waits for some milliseconds. Throws
/// `Error` G-TRACK-2 where SQLite refuses, and `Error` G-SEARCH-2 for what is not understood.
std::vector<RecordedStudy> read_studies(const std::filesystem::path& file);

}  // namespace gradus::search
