#pragma once

#include <gradus/optim/bnb_optimizer.h>

#include <array>

namespace gradus {

/// Settings of `Lion`.
struct LionOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-4;
  /// How much of the running mean is kept in the update, and in the state.
  std::array<double, 2> betas = {0.9, 0.99};
  double weight_decay = 0.0;  ///< decoupled
  BnbStates states = {};      ///< how the running mean is kept
};

/// Lion, the sign of an interpolated momentum, as in bitsandbytes (`lion_32bit`, `lion_8bit`).
///
/// It keeps one state per parameter, half of what Adam keeps. Good rates are three to ten times
/// smaller than those of AdamW. Thread-safety: as `Optimizer`.
class Lion : public BnbOptimizer {
 public:
  /// All parameters in one group.
  explicit Lion(std::vector<torch::Tensor> params, LionOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit Lion(std::vector<ParamGroupInit> groups, LionOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` G-OPTIM-1 or G-OPTIM-7 for a value that cannot
  /// be used. The table of src/optim/factory.cpp has a row for it.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

 protected:
  // How the base class updates, saves and loads it: see BnbOptimizer.
  void apply(const Values& values, size_t group, int64_t step) override;
  std::vector<std::string> slot_names() const override { return {"state1", "qmap1", "absmax1"}; }
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;

 private:
  std::vector<LionOptions> options_;  // one per group
};

}  // namespace gradus
