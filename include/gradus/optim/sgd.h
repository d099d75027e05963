#pragma once

#include <gradus/optim/optimizer.h>

namespace gradus {

/// Settings of `SGD`, with torch's names and defaults.
struct SGDOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-3;
  /// How much of the last update is kept.
  double momentum = 0.0;
  /// How much of the gradient is left out of the momentum.
  double dampening = 0.0;
  double weight_decay = 0.0;  ///< added to the gradient; for groups that set none
  bool nesterov = false;      ///< needs momentum and no dampening
  /// Go up the gradient instead of down.
  bool maximize = false;
};

/// Stochastic gradient descent, `torch.optim.SGD`, on ATen's fused kernels.
/// Throws `Error` G-OPTIM-1 for options torch refuses.
/// Thread-safety: as `Optimizer`.
class SGD : public Optimizer {
 public:
  /// All parameters in one group.
  explicit SGD(std::vector<torch::Tensor> params, SGDOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit SGD(std::vector<ParamGroupInit> groups, SGDOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` G-OPTIM-1 or G-OPTIM-7 for a value that cannot
  /// be used. The table of src/optim/factory.cpp has a row for it.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  std::string name() const override { return "sgd"; }
  bool is_elementwise() const override { return true; }
  bool takes_grad_scale() const override { return true; }

 protected:
  // How the base class updates, saves and loads it: see Optimizer.
  void update(Bucket& bucket, const StepContext& context) override;
  /// The step in torch's separate operations.
  void update_in_steps(Bucket& bucket);
  std::vector<std::string> slot_names() const override { return {"momentum_buffer"}; }
  StepForm step_form() const override { return StepForm::none; }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;
  ParamState read_param_entry(const StateTree& entry, const torch::Tensor& param, size_t group,
                              const std::string& what) const override;

 private:
  std::vector<SGDOptions> options_;  // one per group
};

}  // namespace gradus
