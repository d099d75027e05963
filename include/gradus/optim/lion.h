#pragma once

#include <gradus/optim/optimizer.h>

#include <array>

namespace gradus {

struct LionOptions {
  double lr = 1e-4;
  std::array<double, 2> betas = {0.9, 0.99};
  double weight_decay = 0.0;  ///< decoupled
};

/// Lion, the sign of an interpolated momentum, as in bitsandbytes (`lion_32bit`).
class Lion : public Optimizer {
 public:
  explicit Lion(std::vector<torch::Tensor> params, LionOptions options = {});
  explicit Lion(std::vector<ParamGroupInit> groups, LionOptions options = {});

  std::string name() const override { return "lion_32bit"; }

 protected:
  void update(Bucket& bucket, const StepContext& context) override;
  std::vector<std::string> slot_names() const override { return {"state1"}; }
  StepForm step_form() const override { return StepForm::integer; }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;
  StateTree param_entry(const ParamState& state, size_t group) const override;
  ParamState read_param_entry(const StateTree& entry, const torch::Tensor& param, size_t group,
                              const std::string& what) const override;

 private:
  std::vector<LionOptions> options_;  // one per group
};

}  // namespace gradus
