#pragma once

#include <gradus/optim/adafactor.h>
#include <gradus/optim/projection.h>
#include <gradus/optim/target_modules.h>

namespace gradus {

class GradientProjector;

/// GaLore with Adafactor: `galore_adafactor` and `galore_adafactor_layerwise`.
///
/// The gradients of the target layers are projected to a low rank, in which the states are kept;
/// the update is projected back. Groups are those of `LowRankAdamW`. Thread-safety: as `Optimizer`.
class GaLoreAdafactor : public Adafactor {
 public:
  /// Splits the parameters of `groups`; other settings of theirs are dropped. `is_layerwise` is the
  /// form whose gradients are not clipped. Throws `Error` G-OPTIM-10 when `targets` name no linear
  /// layer, G-OPTIM-1 for a setting that cannot be used.
  GaLoreAdafactor(const std::vector<ParamGroupInit>& groups,
                  const std::optional<TargetModules>& targets, double lr,
                  ProjectionOptions projection = {}, bool is_layerwise = false);
  /// Ends the projector, whose type is private.
  ~GaLoreAdafactor() override;

  /// Makes it from training arguments, as `Trainer` does for its names in `--optim`: without weight
  /// decay. `extra` holds the settings of `--optim_args`. Throws `Error` as the constructor, and
  /// G-OPTIM-7.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  /// What `--optim` calls it.
  std::string name() const override {
    return is_layerwise_ ? "galore_adafactor_layerwise" : "galore_adafactor";
  }
  /// The layer-wise form of Python steps inside the backward pass, where nobody can clip.
  bool takes_clipping() const override { return !is_layerwise_; }

 protected:
  // How the base class updates, saves and loads it: see Adafactor.
  /// Adafactor's, then the bases of the projection, which Python keeps in an object.
  std::vector<std::string> slot_names() const override;
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;
  // Both ways of the projection.
  torch::Tensor in_state_space(Bucket& bucket, size_t i, const torch::Tensor& grad) override;
  torch::Tensor in_parameter_space(Bucket& bucket, size_t i, const torch::Tensor& update) override;

 private:
  ProjectionOptions projection_;                  // of the target layers
  std::unique_ptr<GradientProjector> projector_;  // made from it
  bool is_layerwise_;                             // for the name and for clipping
};

}  // namespace gradus
