#pragma once

#include <gradus/search/frozen_trial.h>

#include <filesystem>
#include <functional>

#include "trackers/sqlite_database.h"

namespace gradus::search {

/// One study in a SQLite file with the tables of Optuna's RDB storage, as alembic revision v3.2.0.a
/// has them: Optuna and its dashboard open the file, and it may be one of theirs.
///
/// Other processes may use the file at the same time. Members throw `Error` G-TRACK-2 where SQLite
/// refuses. Thread-safety: none.
class StudyFile {
 public:
  /// Opens the study of this name, or makes it. An empty `file` keeps it in memory. Throws `Error`
  /// G-SEARCH-4 when it is there and has another direction or several, or when the tables are of
  /// another version.
  StudyFile(const std::filesystem::path& file, const std::string& name, Direction direction);

  /// All trials, in the order of their numbers. Those that are finished are read once.
  std::vector<FrozenTrial> trials();
  /// One trial.
  FrozenTrial trial(int64_t id);

  /// Adds a trial that runs; returns its id.
  int64_t add_trial();
  /// Begins a trial that waits.
  void begin(int64_t trial);
  /// Notes a parameter of a trial.
  void set_param(int64_t trial, const std::string& name, double number,
                 const Distribution& distribution);
  /// Notes what was reported at a step; what was there for it is replaced.
  void set_intermediate(int64_t trial, int64_t step, double value);
  /// Notes something of a trial. `table` is "user" or "system".
  void set_trial_attr(int64_t trial, const char* table, const std::string& key,
                      const nlohmann::json& value);
  /// Notes something of the study.
  void set_study_attr(const char* table, const std::string& key, const nlohmann::json& value);
  /// What was noted of the study; null when nothing was.
  nlohmann::json study_attr(const char* table, const std::string& key);
  /// Ends a trial that runs. Returns whether it was still running.
  bool finish(int64_t trial, TrialState state, std::optional<double> value);

  /// Runs `work` as one transaction. Inside one, it only runs it.
  void together(const std::function<void()>& work);

 private:
  void make_tables();
  void read_details(std::vector<FrozenTrial>& trials);

  SqliteDatabase database_;
  int64_t study_ = 0;
  bool inside_ = false;
  std::map<int64_t, FrozenTrial> finished_;  // by id
};

}  // namespace gradus::search
