#pragma once

#include <gradus/core/numpy_random.h>
#include <gradus/search/frozen_trial.h>

#include <functional>
#include <memory>
#include <span>

namespace gradus::search {

/// What a sampler sees: the other trials of a study, and which way is better.
struct StudyView {
  std::span<const FrozenTrial> trials;        ///< In the order of their numbers.
  Direction direction = Direction::minimize;  ///< Which values are better.
};

/// Chooses the parameters of trials.
///
/// The study asks `sample_together` once per trial, and `sample_one` for every parameter that this
/// has left open. Thread-safety: none.
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// Its name in files and messages.
  virtual std::string name() const = 0;
  /// A trial begins. Returns what to note of it; null for nothing.
  virtual nlohmann::json before_trial(const StudyView&, const FrozenTrial&) { return nullptr; }
  /// Numbers of parameters that are chosen with an eye to each other.
  virtual std::map<std::string, double> sample_together(const StudyView&, const FrozenTrial&) {
    return {};
  }
  /// The number of one parameter.
  virtual double sample_one(const StudyView& study, const FrozenTrial& trial,
                            const std::string& name, const Distribution& distribution) = 0;
  /// Whether nothing is left to try.
  virtual bool is_exhausted(const StudyView&) const { return false; }

  /// What a study keeps, so that a search that was killed goes on with the numbers that would have
  /// come next.
  virtual nlohmann::json state() const = 0;
  /// Takes it over. A state of another sampler is ignored.
  virtual void load(const nlohmann::json& state) = 0;
};

/// A generator of numpy that knows how far it is.
class CountedRandom {
 public:
  /// Starts from a seed.
  explicit CountedRandom(uint64_t seed) : seed_(seed), random_(seed) {}
  /// A number in [0, 1), as numpy's `rand()`.
  double rand() { return ++drawn_, random_.rand(); }
  /// How many numbers were drawn.
  int64_t drawn() const { return drawn_; }
  /// Goes to where `drawn` numbers have been drawn.
  void go_to(uint64_t seed, int64_t drawn);
  /// Its seed.
  uint64_t seed() const { return seed_; }

 private:
  uint64_t seed_;
  int64_t drawn_ = 0;
  NumpyRandomState random_;
};

/// Draws every parameter by itself, as Optuna's RandomSampler with the same seed does.
class RandomSampler : public Sampler {
 public:
  /// Without a seed one is chosen; the study keeps it.
  explicit RandomSampler(std::optional<uint64_t> seed = std::nullopt);

  // See Sampler.
  std::string name() const override { return "random"; }
  double sample_one(const StudyView& study, const FrozenTrial& trial, const std::string& name,
                    const Distribution& distribution) override;
  nlohmann::json state() const override;
  void load(const nlohmann::json& state) override;

 private:
  CountedRandom random_;
};

/// Tries every combination once, in the shuffled order of Optuna's GridSampler.
class GridSampler : public Sampler {
 public:
  /// The values by name.
  using Grid = std::map<std::string, std::vector<nlohmann::json>>;
  /// Throws `Error` G-SEARCH-1 for an empty list, and for more than a million combinations.
  explicit GridSampler(Grid grid, uint64_t seed = 0);

  /// How many combinations there are.
  int64_t size() const { return int64_t(order_.size()); }

  // See Sampler.
  std::string name() const override { return "grid"; }
  nlohmann::json before_trial(const StudyView& study, const FrozenTrial& trial) override;
  double sample_one(const StudyView& study, const FrozenTrial& trial, const std::string& name,
                    const Distribution& distribution) override;
  bool is_exhausted(const StudyView& study) const override;
  nlohmann::json state() const override { return {{"name", name()}}; }
  void load(const nlohmann::json&) override {}

 private:
  std::vector<int64_t> open(const StudyView& study) const;
  int64_t cell_of(const FrozenTrial& trial) const;

  Grid grid_;
  std::vector<int64_t> order_;  // which combination the cell of a trial is
};

/// Options of `TPESampler`; the defaults are Optuna's.
struct TPEOptions {
  int64_t n_startup_trials = 10;                ///< Trials that are drawn at random first.
  int64_t n_ei_candidates = 24;                 ///< Candidates of which the best is taken.
  std::optional<uint64_t> seed = std::nullopt;  ///< Without one, one is chosen; the study keeps it.
  /// Whether parameters are chosen together. Optuna's default for one objective.
  bool multivariate = true;
  /// Whether trials that still run count as bad ones, so that no two try the same.
  bool constant_liar = true;
};

/// The Tree-structured Parzen Estimator of Optuna 5: with the same seed, space and values it
/// suggests the same parameters.
///
/// It models where the best trials lie and where the others do, draws candidates from the first and
/// takes the one for which the two differ most.
class TPESampler : public Sampler {
 public:
  /// See `TPEOptions`.
  explicit TPESampler(TPEOptions options = {});

  // See Sampler.
  std::string name() const override { return "tpe"; }
  std::map<std::string, double> sample_together(const StudyView& study,
                                                const FrozenTrial& trial) override;
  double sample_one(const StudyView& study, const FrozenTrial& trial, const std::string& name,
                    const Distribution& distribution) override;
  nlohmann::json state() const override;
  void load(const nlohmann::json& state) override;

 private:
  std::map<std::string, double> sample(const StudyView& study, const FrozenTrial& trial,
                                       const std::map<std::string, Distribution>& space);

  TPEOptions options_;
  CountedRandom random_;
  RandomSampler startup_;  // for the first trials
};

/// Makes a sampler of this name: "random", "grid" or "tpe". `grid` is used by the second. Throws
/// `Error` G-SEARCH-3 for an unknown one.
std::shared_ptr<Sampler> make_sampler(const std::string& name, std::optional<uint64_t> seed,
                                      const GridSampler::Grid& grid = {});
/// The names that `make_sampler` knows.
std::vector<std::string> sampler_names();

}  // namespace gradus::search
