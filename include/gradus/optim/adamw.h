#pragma once

#include <gradus/optim/optimizer.h>

#include <array>

namespace gradus {

/// Settings of `AdamW`, with torch's names and defaults.
struct AdamWOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-3;
  /// How much of the running means of gradients and of their squares is kept.
  std::array<double, 2> betas = {0.9, 0.999};
  /// Added to the denominator.
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< for groups that set none
  /// Divide by the largest mean of squares so far.
  bool amsgrad = false;
  /// Go up the gradient instead of down.
  bool maximize = false;
  /// One pass over the parameters. Without it a CPU takes the step in torch's separate operations,
  /// whose last bits differ; a GPU is fused either way.
  bool fused = true;
  /// What `--optim` calls it; told from `fused` where it is empty.
  std::string name = {};
};

/// Adam with decoupled weight decay, `torch.optim.AdamW`, on ATen's kernels. On a GPU with the CUDA
/// plugin one launch per group does everything: clipping, the step, and the bfloat16 copies of
/// master weights.
/// Thread-safety: as `Optimizer`.
class AdamW : public Optimizer {
 public:
  /// All parameters in one group.
  explicit AdamW(std::vector<torch::Tensor> params, AdamWOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit AdamW(std::vector<ParamGroupInit> groups, AdamWOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` G-OPTIM-1 or G-OPTIM-7 for a value that cannot
  /// be used. The table of src/optim/factory.cpp has a row for it.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  std::string name() const override { return name_; }
  /// Parts of parameters can be trained alone.
  bool is_elementwise() const override { return true; }
  bool takes_grad_scale() const override { return !steps_apart(); }
  bool skips_on_device() const override { return true; }
  bool takes_device_lr() const override { return true; }
  bool is_recordable() const override { return updates_weights() && is_arranged(); }

  /// The settings of a group.
  const AdamWOptions& options(size_t group) const { return options_.at(group); }

 protected:
  // How the base class updates, saves and loads it: see Optimizer.
  bool updates_weights() const override;
  void update(Bucket& bucket, const StepContext& context) override;
  std::vector<std::string> slot_names() const override {
    return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  int64_t bucket_step(const Bucket& bucket) const override { return read_step_tensor(bucket); }
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;

 private:
  /// Whether the step is taken in torch's separate operations: not fused, and on a CPU.
  bool steps_apart() const;
  void update_in_steps(Bucket& bucket);

  std::vector<AdamWOptions> options_;  // one per group
  bool fused_;
  std::string name_;
};

}  // namespace gradus
