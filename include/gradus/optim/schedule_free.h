#pragma once

#include <gradus/optim/optimizer.h>

#include <array>

namespace gradus {

/// Settings of `ScheduleFree`.
struct ScheduleFreeOptions {
  /// Learning rate of groups that set none.
  double lr = 2.5e-3;
  std::array<double, 2> betas = {0.9, 0.999};  ///< adamw and radam
  double eps = 1e-8;                           ///< adamw and radam
  double momentum = 0.9;                       ///< sgd: between 0 and 1, both excluded
  /// For groups that set none.
  double weight_decay = 0.0;
  double warmup_steps = 0.0;     ///< adamw and sgd: linear warm-up inside the optimizer
  double r = 0.0;                ///< power of the step in the averaging weights
  double weight_lr_power = 2.0;  ///< power of the learning rate in the averaging weights
  bool silent_sgd_phase = true;  ///< radam: no update while its variance estimate is too short
};

/// Which optimizer runs without a schedule.
enum class ScheduleFreeKind { adamw, sgd, radam };

/// The schedule-free optimizers of the `schedulefree` package: no schedule, an average of the
/// iterates instead.
///
/// Gradients are taken at one set of parameters, evaluation and saving want another. Call `train()`
/// before steps and `eval()` before evaluation or saving; a step in eval mode throws `Error`
/// G-OPTIM-4. Use a constant schedule.
/// Thread-safety: as `Optimizer`.
class ScheduleFree : public Optimizer {
 public:
  /// All parameters in one group.
  ScheduleFree(ScheduleFreeKind kind, std::vector<torch::Tensor> params,
               ScheduleFreeOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  ScheduleFree(ScheduleFreeKind kind, std::vector<ParamGroupInit> groups,
               ScheduleFreeOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` G-OPTIM-1 or G-OPTIM-7 for a value that cannot
  /// be used. The table of src/optim/factory.cpp has a row for it.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  std::string name() const override;
  void train() override;
  void eval() override;
  bool can_train_masters() const override {
    return false;
  }  // two sets of values per parameter already

 protected:
  // How the base class updates, saves and loads it: see Optimizer.
  void begin_step() override;
  void update(Bucket& bucket, const StepContext& context) override;
  std::vector<std::string> slot_names() const override { return {"z", "exp_avg_sq"}; }
  StepForm step_form() const override { return StepForm::none; }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;

 private:
  /// What the package keeps in a group, and the factors of the current step.
  struct Progress {
    int64_t k = 0;
    double weight_sum = 0.0, lr_max = -1.0, scheduled_lr = 0.0;
    double weight = 0.0, bias_correction2 = 1.0;
    bool normalise = true;
  };
  void move_params(bool to_train);
  double interpolation(size_t group) const;

  ScheduleFreeKind kind_;
  std::vector<ScheduleFreeOptions> options_;  // one per group
  std::vector<Progress> progress_;            // one per group
  bool train_mode_ = true;
};

}  // namespace gradus
