#pragma once

#include <gradus/optim/optimizer.h>

#include <array>

namespace gradus {

/// Settings of `AnyPrecisionAdamW`, with torchdistx' names and transformers' defaults.
struct AnyPrecisionAdamWOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-3;
  /// How much of the running means of gradients and of their squares is kept.
  std::array<double, 2> betas = {0.9, 0.999};
  /// Added to the denominator.
  double eps = 1e-8;
  double weight_decay = 0.0;         ///< decoupled; for groups that set none
  bool use_kahan_summation = false;  ///< keep what rounding takes from an update for the next one
  at::ScalarType momentum_dtype = at::kFloat;                ///< of the mean of gradients
  at::ScalarType variance_dtype = at::kFloat;                ///< of the mean of squares
  at::ScalarType compensation_buffer_dtype = at::kBFloat16;  ///< of what rounding took
  /// Round states of bfloat16 up or down by chance. To the nearest, a mean of squares would stay
  /// where it is: a step changes it by less than bfloat16 can hold. torchdistx has no such setting.
  bool stochastic_rounding = false;
};

/// AdamW with states in types of one's choice: torchdistx' `AnyPrecisionAdamW`.
///
/// With Kahan summation a model of bfloat16 parameters trains without float32 masters.
/// Thread-safety: as `Optimizer`.
class AnyPrecisionAdamW : public Optimizer {
 public:
  /// All parameters in one group.
  explicit AnyPrecisionAdamW(std::vector<torch::Tensor> params,
                             AnyPrecisionAdamWOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit AnyPrecisionAdamW(std::vector<ParamGroupInit> groups,
                             AnyPrecisionAdamWOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` G-OPTIM-1 or G-OPTIM-7 for a value that cannot
  /// be used.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  std::string name() const override { return "adamw_anyprecision"; }
  bool is_elementwise() const override { return true; }

 protected:
  // How the base class updates, saves and loads it: see Optimizer.
  void update(Bucket& bucket, const StepContext& context) override;
  std::vector<std::string> slot_names() const override {
    return {"exp_avg", "exp_avg_sq", "compensation"};
  }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;

 private:
  std::vector<AnyPrecisionAdamWOptions> options_;  // one per group
};

}  // namespace gradus
