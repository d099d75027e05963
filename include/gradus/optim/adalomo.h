#pragma once

#include <gradus/optim/adafactor.h>

namespace gradus {

/// AdaLomo of the package lomo-optim: `Adafactor` with a rate from outside that grows with a
/// parameter's size, and without a first moment.
///
/// As with `Lomo`, the step comes after the backward pass, with the same numbers, and gradients are
/// not clipped. The second moments are saved, which the Python package does not do.
/// Thread-safety: as `Optimizer`.
class AdaLomo : public Adafactor {
 public:
  /// Settings: the learning rate and the weight decay of groups that set none.
  explicit AdaLomo(std::vector<ParamGroupInit> groups, double lr = 1e-3, double weight_decay = 0.0);

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`: without weight
  /// decay. Throws `Error` G-OPTIM-1 for a value that cannot be used.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  std::string name() const override { return "adalomo"; }
  bool takes_clipping() const override { return false; }

 protected:
  StateTree group_options(size_t group) const override;
};

}  // namespace gradus
