#pragma once

#include <gradus/optim/optimizer.h>

#include <array>

namespace gradus {

struct StableAdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.99};
  double eps = 1e-6;
  double weight_decay = 1e-2;
  bool decouple_lr = false;  ///< weight decay independent of the learning rate
  std::optional<double> max_lr =
      std::nullopt;  ///< highest scheduled rate, for `decouple_lr`; default `lr`
  /// Kahan summation for half-precision parameters; not set: used where they are.
  std::optional<bool> kahan_sum = std::nullopt;
};

/// AdamW whose rate falls per tensor when the update grows too large, `optimi.StableAdamW`.
/// The stabilising factor stays on the device.
class StableAdamW : public Optimizer {
 public:
  explicit StableAdamW(std::vector<torch::Tensor> params, StableAdamWOptions options = {});
  explicit StableAdamW(std::vector<ParamGroupInit> groups, StableAdamWOptions options = {});

  std::string name() const override { return "stable_adamw"; }

 protected:
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
