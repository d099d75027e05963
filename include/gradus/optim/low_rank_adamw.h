#pragma once

#include <gradus/optim/optimizer.h>
#include <gradus/optim/projection.h>
#include <gradus/optim/target_modules.h>

#include <array>

namespace gradus {

class GradientProjector;

/// Settings of `LowRankAdamW`, with the names and defaults of galore-torch and apollo-torch.
struct LowRankAdamWOptions {
  /// Learning rate of all groups.
  double lr = 1e-3;
  /// How much of the running means of gradients and of their squares is kept.
  std::array<double, 2> betas = {0.9, 0.999};
  /// Added to the denominator.
  double eps = 1e-6;
  double weight_decay = 0.0;          ///< decoupled
  ProjectionOptions projection = {};  ///< of the target layers
  /// APOLLO: the projected gradient only measures how far the true one goes, by channel or for the
  /// whole tensor. Without it, GaLore: the projected gradient's update is projected back.
  bool is_apollo = false;
  std::string proj = "random";         ///< APOLLO's bases: "random" or "svd"
  std::string scale_type = "channel";  ///< APOLLO's measure: "channel" or "tensor"
  /// The layer-wise form. Python steps inside the backward pass then, so gradients are not clipped;
  /// here the step comes after it, with the same numbers.
  bool is_layerwise = false;
};

/// AdamW whose states of chosen matrices have a low rank: GaLore and APOLLO.
///
/// It has two groups: all other parameters, which plain AdamW updates, and the weights of the
/// linear layers that `TargetModules` names. Thread-safety: as `Optimizer`.
class LowRankAdamW : public Optimizer {
 public:
  /// Splits the parameters of `groups`; other settings of theirs are dropped. `targets` apply to
  /// the groups' names. Throws `Error` G-OPTIM-10 when they name none, G-OPTIM-1 for a setting that
  /// cannot be used.
  LowRankAdamW(const std::vector<ParamGroupInit>& groups,
               const std::optional<TargetModules>& targets, LowRankAdamWOptions options = {});
  ~LowRankAdamW() override;

  /// Makes it from training arguments, as `Trainer` does for its names in `--optim`: without weight
  /// decay; only APOLLO's target layers take betas and epsilon from there. `extra` holds the
  /// settings of `--optim_args`. Throws `Error` as the constructor, and G-OPTIM-7.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  std::string name() const override;
  bool takes_clipping() const override { return !target_.is_layerwise; }
  /// With the seeds of APOLLO's parameters, which its Python form needs to go on.
  StateTree state_dict() const override;

 protected:
  // How the base class updates, saves and loads it: see Optimizer.
  void update(Bucket& bucket, const StepContext& context) override;
  std::vector<std::string> slot_names() const override {
    return {"exp_avg", "exp_avg_sq", "scaled_grad", "ortho_left", "ortho_right"};
  }
  StepForm step_form() const override { return StepForm::integer; }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;

 private:
  void make_projector();
  torch::Tensor projected(Bucket& bucket, size_t i) const;
  torch::Tensor scaled_as_projected(Bucket& bucket, size_t i, const torch::Tensor& low,
                                    const torch::Tensor& step) const;
  int64_t seed_of(int64_t number) const;

  LowRankAdamWOptions target_;  // of the target layers; the others have the defaults
  std::unique_ptr<GradientProjector> projector_;
};

}  // namespace gradus
