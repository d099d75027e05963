#pragma once

#include <gradus/optim/optimizer.h>

namespace gradus {

/// Settings of `RMSprop`, with torch's names and defaults.
struct RMSpropOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-2;
  /// How much of the running mean of squares is kept.
  double alpha = 0.99;
  /// Added to the denominator.
  double eps = 1e-8;
  double weight_decay = 0.0;  ///< added to the gradient; for groups that set none
  /// How much of the last update is kept.
  double momentum = 0.0;
  /// Divide by the deviation from the mean gradient.
  bool centered = false;
};

/// `torch.optim.RMSprop`.
///
/// Gradients are divided by the root of a running mean of their squares. Thread-safety: as
/// `Optimizer`.
class RMSprop : public Optimizer {
 public:
  /// All parameters in one group.
  explicit RMSprop(std::vector<torch::Tensor> params, RMSpropOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit RMSprop(std::vector<ParamGroupInit> groups, RMSpropOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` G-OPTIM-1 or G-OPTIM-7 for a value that cannot
  /// be used. The table of src/optim/factory.cpp has a row for it.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  std::string name() const override { return "rmsprop"; }
  bool is_elementwise() const override { return true; }

 protected:
  // How the base class updates, saves and loads it: see Optimizer.
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
