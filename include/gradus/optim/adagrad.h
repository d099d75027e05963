#pragma once

#include <gradus/optim/optimizer.h>

namespace gradus {

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0.0;
  double weight_decay = 0.0;  ///< added to the gradient; for groups that set none
  double initial_accumulator_value = 0.0;
  double eps = 1e-10;
};

/// `torch.optim.Adagrad`.
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(std::vector<torch::Tensor> params, AdagradOptions options = {});
  explicit Adagrad(std::vector<ParamGroupInit> groups, AdagradOptions options = {});

  std::string name() const override { return "adagrad"; }

 protected:
  void update(Bucket& bucket, const StepContext& context) override;
  std::vector<std::string> slot_names() const override { return {"sum"}; }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;

 private:
  std::vector<AdagradOptions> options_;  // one per group
};

}  // namespace gradus
