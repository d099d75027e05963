#pragma once

#include <gradus/optim/bnb_optimizer.h>

#include <array>

namespace gradus {

/// Settings of `BnbAdamW`, with bitsandbytes' names and defaults.
struct BnbAdamWOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-3;
  /// How much of the running means of gradients and of their squares is kept.
  std::array<double, 2> betas = {0.9, 0.999};
  /// Added to the denominator.
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< decoupled; for groups that set none
  BnbStates states = {};       ///< how both means are kept
};

/// AdamW of bitsandbytes: `adamw_bnb_8bit`, `adamw_8bit`, `paged_adamw_8bit`, `paged_adamw_32bit`.
///
/// With states of 8 bits it needs two bytes of state for a parameter in place of eight.
/// Thread-safety: as `Optimizer`.
class BnbAdamW : public BnbOptimizer {
 public:
  /// All parameters in one group.
  explicit BnbAdamW(std::vector<torch::Tensor> params, BnbAdamWOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit BnbAdamW(std::vector<ParamGroupInit> groups, BnbAdamWOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its names in `--optim`. Throws `Error`
  /// G-OPTIM-1 for a value that cannot be used.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

 protected:
  // How the base class updates, saves and loads it: see BnbOptimizer.
  void apply(const Values& values, size_t group, int64_t step) override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;

 private:
  std::vector<BnbAdamWOptions> options_;  // one per group
};

}  // namespace gradus
