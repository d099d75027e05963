#pragma once

#include <gradus/search/pruner.h>

#include <filesystem>

namespace gradus::search {

class Study;
class StudyFile;

/// Thrown by an objective to end a trial that a pruner has stopped. It is no std::exception, so
/// that code on the way does not take it for a failure.
struct TrialPruned {};
/// Thrown by an objective to stop the search and leave the trial as it is: the next process takes
/// it up again.
struct SearchInterrupted {};

/// A trial that runs. It suggests parameters and hears how it goes.
///
/// It belongs to its `Study`, which must outlive it. Thread-safety: that of the study.
class Trial {
 public:
  /// Which trial of the study it is, from 0.
  int64_t number() const { return number_; }
  /// Its key in the file of the study.
  int64_t id() const { return id_; }
  /// The parameters suggested so far, with their values.
  nlohmann::json params() const;
  /// The trial as the study holds it now.
  FrozenTrial frozen() const;

  /// A value of this distribution. Asked a second time for a name, it gives the same again; so does
  /// a trial that goes on after its process was killed. Throws `Error` G-SEARCH-2 when the name has
  /// another kind of distribution in this trial.
  nlohmann::json suggest(const std::string& name, const Distribution& distribution);
  /// A real number; `log` and `step` as in `Distribution::real`.
  double suggest_float(const std::string& name, double low, double high, bool log = false,
                       std::optional<double> step = std::nullopt);
  /// An integer.
  int64_t suggest_int(const std::string& name, int64_t low, int64_t high, bool log = false,
                      int64_t step = 1);
  /// One of a list.
  nlohmann::json suggest_categorical(const std::string& name, std::vector<nlohmann::json> choices);

  /// Notes how the objective stands after `step`. A second report of a step replaces the first.
  void report(double value, int64_t step);
  /// Whether the pruner of the study would stop the trial after its last report.
  bool should_prune();
  /// Notes something of the trial, for people to read.
  void set_user_attr(const std::string& key, const nlohmann::json& value);

 private:
  friend class Study;
  Trial(Study& study, int64_t id, int64_t number) : study_(&study), id_(id), number_(number) {}

  Study* study_;
  int64_t id_, number_;
  std::optional<std::map<std::string, double>> together_;  // what was chosen at once
};

/// Where a study is kept and how its trials are chosen.
struct StudyOptions {
  /// The SQLite file, which Optuna and its dashboard open as `sqlite:///FILE`. Empty: in memory.
  std::filesystem::path storage = {};
  std::string study_name = "gradus";           ///< A file may hold several.
  std::string direction = "minimize";          ///< Or "maximize".
  std::shared_ptr<Sampler> sampler = nullptr;  ///< By default TPE, as in Optuna.
  std::shared_ptr<Pruner> pruner = nullptr;    ///< By default the median, as in Optuna.
};

/// A search: trials, what they gave, and what to try next. The counterpart of Optuna's Study.
///
///     gradus::search::Study study({.storage = "study.db"});
///     study.optimize([](Trial& trial) {
///       const double x = trial.suggest_float("x", -10, 10);
///       return x * x;
///     }, 60);
///     std::cout << study.best_trial().params();
///
/// A study in a file outlives the process: opened again it goes on, with the numbers that would
/// have come next, and trials that a killed process has left are taken up first. Several processes
/// may work on one file. Thread-safety: none.
class Study {
 public:
  /// Opens the study or makes it. Throws `Error` G-SEARCH-3 for an unknown direction and G-SEARCH-4
  /// when the file holds the study with another one.
  explicit Study(StudyOptions options = {});
  ~Study();
  Study(const Study&) = delete;
  Study& operator=(const Study&) = delete;

  /// A trial to run next: one that a dead process of this machine has left, else a new one. With a
  /// `space` its parameters are chosen at once, in one transaction with the trial itself.
  Trial ask(const std::map<std::string, Distribution>& space = {});
  /// The same, as long as the study has fewer than `n_trials`, whatever has become of them; unset
  /// when there is nothing more to do.
  std::optional<Trial> ask_up_to(int64_t n_trials,
                                 const std::map<std::string, Distribution>& space = {});
  /// A trial of this study by its key; for a process that runs a trial which another has asked for.
  Trial trial(int64_t id);
  /// The value of a trial. One that is NaN makes it a failed one.
  void tell(const Trial& trial, double value);
  /// Ends a trial without a value of its own: pruned, with its last report as the value, or failed.
  void tell(const Trial& trial, TrialState state);

  /// Runs trials until the study has `n_trials` of them. An exception of the objective makes its
  /// trial a failed one and goes on to the caller; `TrialPruned` makes it a pruned one and
  /// `SearchInterrupted` leaves it running.
  void optimize(const std::function<double(Trial&)>& objective, int64_t n_trials);

  /// All trials, in the order of their numbers.
  std::vector<FrozenTrial> trials() const;
  /// The complete trial with the best value. Throws `Error` G-SEARCH-5 when there is none.
  FrozenTrial best_trial() const;
  /// Which values are better.
  Direction direction() const { return direction_; }
  /// Notes something of the study, for people and tools to read.
  void set_user_attr(const std::string& key, const nlohmann::json& value);
  /// What was noted; null when nothing was.
  nlohmann::json user_attr(const std::string& key) const;

 private:
  friend class Trial;
  double choose(Trial& trial, const FrozenTrial& now, const std::string& name,
                const Distribution& distribution);
  Trial begin_trial(const std::map<std::string, Distribution>& space);
  void keep_sampler_state();
  void load_sampler_state();

  Direction direction_;
  std::shared_ptr<Sampler> sampler_;
  std::shared_ptr<Pruner> pruner_;
  std::unique_ptr<StudyFile> file_;
};

}  // namespace gradus::search
