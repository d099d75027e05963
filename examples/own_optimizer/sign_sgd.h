#pragma once

#include <gradus/optim/factory.h>

/// The settings of `SignSGD`.
struct SignSGDOptions {
  double lr = 1e-3;           ///< every element moves by this much
  double momentum = 0.9;      ///< share of the old direction that is kept
  double weight_decay = 0.0;  ///< decoupled; for groups that set none
};

/// Steps of one size in the direction of the gradient's sign, with momentum.
class SignSGD : public gradus::Optimizer {
 public:
  SignSGD(std::vector<gradus::ParamGroupInit> groups, SignSGDOptions options);

  /// The row for `gradus::register_optimizer`.
  static gradus::OptimizerEntry entry();

  std::string name() const override { return "sign_sgd"; }

 protected:
  void update(Bucket& bucket, const gradus::StepContext& context) override;
  std::vector<std::string> slot_names() const override { return {"momentum_buffer"}; }
  StepForm step_form() const override { return StepForm::none; }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  gradus::StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const gradus::StateTree& saved) override;

 private:
  std::vector<double> momentum_;  // one per group
};
