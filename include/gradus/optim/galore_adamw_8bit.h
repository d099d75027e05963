#pragma once

#include <gradus/optim/bnb_adamw.h>
#include <gradus/optim/projection.h>
#include <gradus/optim/target_modules.h>

namespace gradus {

class GradientProjector;

/// GaLore with AdamW of 8-bit states: `galore_adamw_8bit` and `galore_adamw_8bit_layerwise`.
///
/// The gradients of the target layers are projected to a low rank, in which the states are kept;
/// the update is projected back. Groups are those of `LowRankAdamW`; weight decay is 0.01, as in
/// galore-torch. Thread-safety: as `Optimizer`.
class GaLoreAdamW8bit : public BnbAdamW {
 public:
  /// Splits the parameters of `groups`; other settings of theirs are dropped. `is_layerwise` is the
  /// form whose gradients are not clipped. Throws `Error` G-OPTIM-10 when `targets` name no linear
  /// layer, G-OPTIM-1 for a setting that cannot be used.
  GaLoreAdamW8bit(const std::vector<ParamGroupInit>& groups,
                  const std::optional<TargetModules>& targets, double lr,
                  ProjectionOptions projection = {}, bool is_layerwise = false);
  /// Ends the projector, whose type is private.
  ~GaLoreAdamW8bit() override;

  /// Makes it from training arguments, as `Trainer` does for its names in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` as the constructor, and G-OPTIM-7.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  /// The layer-wise form of Python steps inside the backward pass, where nobody can clip.
  bool takes_clipping() const override { return !is_layerwise_; }

 protected:
  // How the base class updates, saves and loads it: see BnbOptimizer.
  /// Steps of the target layers are made from zero in the low rank, and added.
  void update(Bucket& bucket, const StepContext& context) override;
  /// bitsandbytes', then the bases of the projection, which Python keeps in an object.
  std::vector<std::string> slot_names() const override;
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;
  ParamState read_param_entry(const StateTree& entry, const torch::Tensor& param, size_t group,
                              const std::string& what) const override;

 private:
  /// A tensor like the parameter's projected gradient, or like the parameter.
  torch::Tensor state_space_of(const torch::Tensor& param, size_t group) const;

  ProjectionOptions projection_;                  // of the target layers
  std::unique_ptr<GradientProjector> projector_;  // made from it
  bool is_layerwise_;                             // for clipping
};

}  // namespace gradus
