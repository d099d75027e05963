#pragma once

#include <gradus/optim/optimizer.h>
#include <gradus/optim/schedulers.h>

#include <array>

namespace gradus {

/// Settings of `Adafactor`, with transformers' names and defaults.
struct AdafactorOptions {
  std::optional<double> lr = std::nullopt;    ///< not with `relative_step`
  std::array<double, 2> eps = {1e-30, 1e-3};  ///< for the squared gradient and the parameter scale
  /// Largest root mean square of an update.
  double clip_threshold = 1.0;
  /// In the mean of squares the newest one counts step number to this power.
  double decay_rate = -0.8;
  std::optional<double> beta1 = std::nullopt;  ///< keeps a first moment when set
  /// For groups that set none.
  double weight_decay = 0.0;
  bool scale_parameter = true;  ///< multiply the rate by the parameter's root mean square
  bool relative_step = true;    ///< a rate of its own that falls with the step
  bool warmup_init = false;     ///< start that rate near zero; needs `relative_step`
};

/// `transformers.optimization.Adafactor`: second moments kept as row and column means.
/// Throws `Error` G-OPTIM-1 for a fixed rate together with `relative_step`, or warm-up without it.
/// Thread-safety: as `Optimizer`.
class Adafactor : public Optimizer {
 public:
  /// All parameters in one group.
  explicit Adafactor(std::vector<torch::Tensor> params, AdafactorOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit Adafactor(std::vector<ParamGroupInit> groups, AdafactorOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` G-OPTIM-1 or G-OPTIM-7 for a value that cannot
  /// be used. The table of src/optim/factory.cpp has a row for it.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  std::string name() const override { return "adafactor"; }

  /// The rate the last step used for the first parameter of `group`; nothing before its first step.
  /// Reads the device when the parameter's scale counts.
  std::optional<double> current_lr(size_t group) const;

 protected:
  // How the base class updates, saves and loads it: see Optimizer.
  void update(Bucket& bucket, const StepContext& context) override;
  std::vector<std::string> slot_names() const override {
    return {"exp_avg", "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq", "RMS"};
  }
  StepForm step_form() const override { return StepForm::integer; }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;
  /// The gradient that states and update are made of; an optimizer that projects it overrides both.
  virtual torch::Tensor in_state_space(Bucket&, size_t, const torch::Tensor& grad) { return grad; }
  /// The way back.
  virtual torch::Tensor in_parameter_space(Bucket&, size_t, const torch::Tensor& update) {
    return update;
  }

 private:
  void update_one(const AdafactorOptions& options, const ParamGroup& group, Bucket& bucket,
                  size_t i);
  double base_rate(const AdafactorOptions& options, const ParamGroup& group, int64_t step) const;

  std::vector<AdafactorOptions> options_;  // one per group
};

/// Shows the rates an `Adafactor` with `relative_step` chooses itself, for logs. It changes
/// nothing.
class AdafactorSchedule : public LRScheduler {
 public:
  /// `initial_lr` is shown until the first step. `optimizer` must outlive the schedule.
  explicit AdafactorSchedule(Adafactor& optimizer, double initial_lr = 0.0);

  void step() override;
  using LRScheduler::step;
  std::vector<double> last_lr() const override;
  StateTree state_dict() const override;
  void load_state_dict(const StateTree& state) override;

 private:
  const Adafactor& optimizer_;
  double initial_lr_;
  int64_t last_epoch_ = 0;
};

}  // namespace gradus
