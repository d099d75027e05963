#pragma once

#include <gradus/optim/optimizer.h>

namespace gradus {

/// Settings of `Adagrad`, with torch's names and defaults.
struct AdagradOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-2;
  /// At step t the learning rate is divided by 1 + (t - 1) * lr_decay.
  double lr_decay = 0.0;
  double weight_decay = 0.0;  ///< added to the gradient; for groups that set none
  /// Where the sums of squares begin.
  double initial_accumulator_value = 0.0;
  /// Added to the denominator.
  double eps = 1e-10;
};

/// `torch.optim.Adagrad`.
///
/// The rate of each element falls with the sum of its squared gradients. Thread-safety: as
/// `Optimizer`.
class Adagrad : public Optimizer {
 public:
  /// All parameters in one group.
  explicit Adagrad(std::vector<torch::Tensor> params, AdagradOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit Adagrad(std::vector<ParamGroupInit> groups, AdagradOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` G-OPTIM-1 or G-OPTIM-7 for a value that cannot
  /// be used. The table of src/optim/factory.cpp has a row for it.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  std::string name() const override { return "adagrad"; }
  bool is_elementwise() const override { return true; }

 protected:
  // How the base class updates, saves and loads it: see Optimizer.
  void update(Bucket& bucket, const StepContext& context) override;
  std::vector<std::string> slot_names() const override { return {"sum"}; }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;

 private:
  std::vector<AdagradOptions> options_;  // one per group
};

}  // namespace gradus
