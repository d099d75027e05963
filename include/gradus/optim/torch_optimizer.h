#pragma once

#include <gradus/optim/optimizer.h>

#include <memory>

namespace torch::optim {
class Optimizer;
}

namespace gradus {

/// A `torch::optim::Optimizer` as one of ours, for users who bring their own.
///
/// Learning rates of `param_groups()` are handed down before each step; weight decay stays what the
/// wrapped one says. Its state is saved as LibTorch saves it, inside our file: we read it back,
/// Python does not. `wrapped` is shared. Throws `Error` G-OPTIM-1 for null.
/// Thread-safety: as `Optimizer`.
class TorchOptimizer : public Optimizer {
 public:
  /// Shares the optimizer and its parameters.
  explicit TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> wrapped);

  // As LibTorch does them.
  void step(const StepContext& context = {}) override;
  StateTree state_dict() const override;
  void load_state_dict(const StateTree& state) override;
  /// Always the same: a checkpoint does not know which one was wrapped.
  std::string name() const override { return "torch_optim"; }
  /// False: the wrapped optimizer holds the parameters itself.
  bool can_train_masters() const override { return false; }
  /// The optimizer inside.
  torch::optim::Optimizer& wrapped() { return *wrapped_; }

 protected:
  // Not used: the wrapped optimizer updates, saves and loads.
  void update(Bucket&, const StepContext&) override {}
  std::vector<std::string> slot_names() const override { return {}; }
  std::vector<torch::Tensor> make_slots(const torch::Tensor&, size_t) const override { return {}; }
  StateTree group_options(size_t) const override { return StateTree::dict(); }
  void load_group_options(size_t, const StateTree&) override {}

 private:
  std::shared_ptr<torch::optim::Optimizer> wrapped_;  ///< never null
};

}  // namespace gradus
