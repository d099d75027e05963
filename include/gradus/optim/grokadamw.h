#pragma once

#include <gradus/optim/optimizer.h>

#include <array>

namespace gradus {

/// Settings of `GrokAdamW`, with the names and defaults of the package grokadamw.
struct GrokAdamWOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-3;
  /// How much of the running means of gradients and of their squares is kept.
  std::array<double, 2> betas = {0.9, 0.999};
  /// Added to the denominator.
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< decoupled; for groups that set none
  double alpha_init = 0.98;    ///< how much of the slow mean of gradients is kept
  double lamb = 2.0;           ///< weight of the slow mean in the gradient
  double gamma = 0.1;  ///< by how much beta1 falls from one parameter of a group to the next
  double grokking_signal_decay_rate = 0.1;  ///< kept in files only: transformers gives no signal
  double gradient_clipping = 1.0;  ///< largest norm of a parameter's gradient; 0 clips nothing
};

/// AdamW on gradients with their slow mean added, as in the package grokadamw.
/// Thread-safety: as `Optimizer`.
class GrokAdamW : public Optimizer {
 public:
  /// All parameters in one group.
  explicit GrokAdamW(std::vector<torch::Tensor> params, GrokAdamWOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit GrokAdamW(std::vector<ParamGroupInit> groups, GrokAdamWOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`: betas and
  /// epsilon keep their defaults. `extra` holds the settings of `--optim_args`. Throws `Error`
  /// G-OPTIM-1 or G-OPTIM-7 for a value that cannot be used.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  std::string name() const override { return "grokadamw"; }

 protected:
  // How the base class updates, saves and loads it: see Optimizer.
  void update(Bucket& bucket, const StepContext& context) override;
  std::vector<std::string> slot_names() const override {
    return {"exp_avg", "exp_avg_sq", "grok_ema"};
  }
  StepForm step_form() const override { return StepForm::integer; }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;

 private:
  /// For each parameter of a group, how many before it have gradients.
  std::vector<int64_t> places(size_t group) const;

  std::vector<GrokAdamWOptions> options_;  // one per group
};

}  // namespace gradus
