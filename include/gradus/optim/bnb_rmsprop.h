#pragma once

#include <gradus/optim/bnb_optimizer.h>

namespace gradus {

/// Settings of `BnbRMSprop`, with bitsandbytes' names and defaults.
struct BnbRMSpropOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-2;
  double alpha = 0.99;    ///< how much of the running mean of squares is kept
  double momentum = 0.0;  ///< kept in files only: bitsandbytes does not use it
  /// Added to the denominator.
  double eps = 1e-8;
  double weight_decay = 0.0;  ///< added to the gradient; for groups that set none
  BnbStates states = {};      ///< how the mean is kept
};

/// RMSprop of bitsandbytes: `rmsprop_bnb`, `rmsprop_bnb_32bit` and `rmsprop_bnb_8bit`.
/// Thread-safety: as `Optimizer`.
class BnbRMSprop : public BnbOptimizer {
 public:
  /// All parameters in one group.
  explicit BnbRMSprop(std::vector<torch::Tensor> params, BnbRMSpropOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit BnbRMSprop(std::vector<ParamGroupInit> groups, BnbRMSpropOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its names in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` G-OPTIM-1 or G-OPTIM-7 for a value that cannot
  /// be used.
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
  std::vector<BnbRMSpropOptions> options_;  // one per group
};

}  // namespace gradus
