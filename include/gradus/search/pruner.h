#pragma once

#include <gradus/search/sampler.h>

namespace gradus::search {

/// Says which trials are not worth going on with. Thread-safety: none.
class Pruner {
 public:
  virtual ~Pruner() = default;

  /// What it says of a trial that has just reported.
  struct Verdict {
    bool prune = false;                               ///< Whether to stop it.
    nlohmann::json notes = nlohmann::json::object();  ///< What to note of the trial.
  };
  /// `study` holds all trials, `trial` among them.
  virtual Verdict judge(const StudyView& study, const FrozenTrial& trial) = 0;
};

/// Stops nothing.
class NopPruner : public Pruner {
 public:
  Verdict judge(const StudyView&, const FrozenTrial&) override { return {}; }
};

/// Optuna's default: stops a trial whose best value so far is worse than the median of the complete
/// trials at the same step.
class MedianPruner : public Pruner {
 public:
  /// Nothing is stopped before `n_startup_trials` are complete, nor before step `n_warmup_steps`.
  explicit MedianPruner(int64_t n_startup_trials = 5, int64_t n_warmup_steps = 0);
  Verdict judge(const StudyView& study, const FrozenTrial& trial) override;

 private:
  int64_t n_startup_trials_, n_warmup_steps_;
};

/// Options of `SuccessiveHalvingPruner`; the defaults are Optuna's.
struct HalvingOptions {
  /// The step of the first rung. Unset: a hundredth of the steps of the longest complete trial.
  std::optional<int64_t> min_resource = std::nullopt;
  int64_t reduction_factor = 4;         ///< One in so many gets past a rung.
  int64_t min_early_stopping_rate = 0;  ///< How many rungs to leave out at the beginning.
  int64_t bootstrap_count = 0;          ///< How many must have come to a rung before one passes it.
};

/// Asynchronous successive halving, as Optuna's pruner of that name: rungs at min_resource,
/// min_resource * reduction_factor and so on, each of which only the best pass.
class SuccessiveHalvingPruner : public Pruner {
 public:
  /// Throws `Error` G-SEARCH-1 for options that make no sense together.
  explicit SuccessiveHalvingPruner(HalvingOptions options = {});
  Verdict judge(const StudyView& study, const FrozenTrial& trial) override;

 private:
  HalvingOptions options_;
};

/// Makes a pruner: "none", "median" or "halving". Throws `Error` G-SEARCH-3 for an unknown one.
std::shared_ptr<Pruner> make_pruner(const std::string& name);
/// The names that `make_pruner` knows.
std::vector<std::string> pruner_names();

}  // namespace gradus::search
