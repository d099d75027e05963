#pragma once

#include <gradus/optim/bnb_optimizer.h>

#include <array>

namespace gradus {

/// Settings of `AdEMAMix`.
struct AdEMAMixOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-3;
  std::array<double, 3> betas = {0.9, 0.999,
                                 0.9999};         ///< fast momentum, second moment, slow momentum
  double alpha = 5.0;                             ///< weight of the slow momentum
  std::optional<int64_t> t_alpha = std::nullopt;  ///< steps over which alpha grows from zero
  std::optional<int64_t> t_beta3 = std::nullopt;  ///< steps over which beta3 grows from beta1
  /// Added to the denominator.
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< decoupled
  BnbStates states = {};       ///< how momenta and second moment are kept
};

/// AdEMAMix: Adam with a second, slow momentum, as in bitsandbytes (`ademamix`, `ademamix_8bit`).
///
/// The slow momentum remembers gradients of tens of thousands of steps. `t_alpha` and `t_beta3`
/// bring it in over the first steps. Thread-safety: as `Optimizer`.
class AdEMAMix : public BnbOptimizer {
 public:
  /// All parameters in one group.
  explicit AdEMAMix(std::vector<torch::Tensor> params, AdEMAMixOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit AdEMAMix(std::vector<ParamGroupInit> groups, AdEMAMixOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` G-OPTIM-1 or G-OPTIM-7 for a value that cannot
  /// be used. The table of src/optim/factory.cpp has a row for it.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

 protected:
  // How the base class updates, saves and loads it: see BnbOptimizer.
  void apply(const Values& values, size_t group, int64_t step) override;
  std::vector<std::string> slot_names() const override {
    return {"qmap1", "qmap2", "absmax1", "absmax2", "state1", "state2"};
  }
  /// state1 holds both momenta.
  int64_t stacked() const override { return 2; }
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;

 private:
  std::vector<AdEMAMixOptions> options_;  // one per group
};

}  // namespace gradus
