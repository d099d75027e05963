#pragma once

#include <gradus/optim/optimizer.h>

namespace gradus {

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0.0;  ///< added to the gradient; for groups that set none
  double momentum = 0.0;
  bool centered = false;
};

/// `torch.optim.RMSprop`.
class RMSprop : public Optimizer {
 public:
  explicit RMSprop(std::vector<torch::Tensor> params, RMSpropOptions options = {});
  explicit RMSprop(std::vector<ParamGroupInit> groups, RMSpropOptions options = {});

  std::string name() const override { return "rmsprop"; }

 protected:
  void update(Bucket& bucket, const StepContext& context) override;
  std::vector<std::string> slot_names() const override {
    return {"square_avg", "momentum_buffer", "grad_avg"};
  }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;

 private:
  std::vector<RMSpropOptions> options_;  // one per group
};

}  // namespace gradus
