#pragma once

#include <gradus/optim/optimizer.h>

namespace gradus {

/// Settings of `Lomo`, with the names and defaults of the package lomo-optim.
struct LomoOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-3;
  double weight_decay = 0.0;  ///< decoupled; for groups that set none
};

/// LOMO: plain descent without any state.
///
/// The Python package updates a parameter as soon as its gradient is there, inside the backward
/// pass, and so never holds all gradients. Here the step comes after the pass, with the same
/// numbers. Gradients are not clipped, as there. Thread-safety: as `Optimizer`.
class Lomo : public Optimizer {
 public:
  /// All parameters in one group.
  explicit Lomo(std::vector<torch::Tensor> params, LomoOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit Lomo(std::vector<ParamGroupInit> groups, LomoOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`: without weight
  /// decay. Throws `Error` G-OPTIM-1 for a value that cannot be used.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  std::string name() const override { return "lomo"; }
  bool is_elementwise() const override { return true; }
  bool takes_clipping() const override { return false; }

 protected:
  // How the base class updates, saves and loads it: see Optimizer.
  void update(Bucket& bucket, const StepContext& context) override;
  std::vector<std::string> slot_names() const override { return {}; }
  StepForm step_form() const override { return StepForm::none; }
  std::vector<torch::Tensor> make_slots(const torch::Tensor&, size_t) const override { return {}; }
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t, const StateTree&) override {}
};

}  // namespace gradus
