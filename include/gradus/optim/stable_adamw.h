#pragma once

#include <gradus/optim/optimizer.h>

#include <array>

namespace gradus {

/// Settings of `StableAdamW`.
struct StableAdamWOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-3;
  /// How much of the running means of gradients and of their squares is kept.
  std::array<double, 2> betas = {0.9, 0.99};
  /// Added to the denominator.
  double eps = 1e-6;
  /// For groups that set none.
  double weight_decay = 1e-2;
  bool decouple_lr = false;  ///< weight decay independent of the learning rate
  std::optional<double> max_lr =
      std::nullopt;  ///< highest scheduled rate, for `decouple_lr`; default `lr`
  /// Kahan summation for half-precision parameters; not set: used where they are.
  std::optional<bool> kahan_sum = std::nullopt;
};

/// AdamW whose rate falls per tensor when the update grows too large, `optimi.StableAdamW`.
/// The stabilising factor stays on the device.
/// Thread-safety: as `Optimizer`.
class StableAdamW : public Optimizer {
 public:
  /// All parameters in one group.
  explicit StableAdamW(std::vector<torch::Tensor> params, StableAdamWOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit StableAdamW(std::vector<ParamGroupInit> groups, StableAdamWOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` G-OPTIM-1 or G-OPTIM-7 for a value that cannot
  /// be used. The table of src/optim/factory.cpp has a row for it.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  /// The name in `--optim`.
  std::string name() const override { return "stable_adamw"; }

 protected:
  // How the base class updates, saves and loads it: see Optimizer.
  void begin_step() override;
  void update(Bucket& bucket, const StepContext& context) override;
  std::vector<std::string> slot_names() const override {
    return {"exp_avg", "exp_avg_sq", "eps_sq", "kahan_comp"};
  }
  StepForm step_form() const override { return StepForm::none; }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;
  StateTree param_entry(const ParamState& state, size_t group) const override;

 private:
  std::vector<StableAdamWOptions> options_;  // one per group
  std::vector<int64_t> group_step_;          // one per group; optimi counts there
};

}  // namespace gradus
