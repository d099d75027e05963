#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/data/batch.h>
#include <gradus/device/runtime.h>
#include <gradus/models/model_output.h>
#include <gradus/optim/grad_scaler.h>
#include <gradus/optim/master_weights.h>
#include <torch/nn/module.h>

#include <memory>
#include <span>
#include <string>

namespace gradus {

/// The number format a run computes in: plain float32, autocast, or bfloat16 with master weights.
///
/// float32: nothing is cast. float16: forwards run under autocast, and the loss is scaled by a
/// `GradScaler`. bfloat16: forwards run under autocast, or, between `hold_masters` and
/// `release_masters`, the model itself is bfloat16 while the optimizer trains float32 masters.
/// Thread-safety: none.
class Precision {
 public:
  /// `dtype`: float32, float16 or bfloat16. `device` is where the model computes.
  explicit Precision(torch::Device device, torch::ScalarType dtype = torch::kFloat);

  /// The format forwards compute in.
  torch::ScalarType dtype() const { return dtype_; }
  /// Whether forwards compute in less than float32.
  bool is_mixed() const { return dtype_ != torch::kFloat; }

  /// While it lives, forwards run in this precision. With masters it does nothing: the layers are
  /// bfloat16 themselves.
  device::AutocastGuard guard() const;
  /// The inputs as the model's layers take them. With masters, float32 inputs become bfloat16; the
  /// entries named in `keep` (labels, which are compared in float32) stay.
  Batch cast(Batch inputs, std::span<const std::string> keep) const;
  /// Outputs in half precision become float32 again: mixed precision ends at the model's border.
  void restore(ModelOutput& outputs) const;

  /// Starts a run with a new loss scaler (float16) or without one. `options` are for float16.
  void begin_run(GradScalerOptions options = {});
  /// The loss to call `backward` on: scaled for float16, else the loss itself.
  torch::Tensor scale(const torch::Tensor& loss);
  /// Null except for float16, from `begin_run` on.
  GradScaler* scaler() { return scaler_.get(); }
  /// The same for a const object.
  const GradScaler* scaler() const { return scaler_.get(); }

  /// Makes `model` bfloat16 and lets `optimizer` train float32 masters of its parameters.
  void hold_masters(torch::nn::Module& model, Optimizer& optimizer);
  /// The model is float32 again, with the training in it.
  void release_masters() { masters_.reset(); }
  /// Says that somebody else made the model bfloat16 and trains float32 values of its parameters.
  void set_half_weights(bool are_half) { weights_are_half_ = are_half; }
  /// Whether the model is bfloat16 over float32 masters now.
  bool has_masters() const { return masters_ != nullptr || weights_are_half_; }

  /// While the scope lives, the model's parameters are what is trained: the masters, where there
  /// are any. Open one to save, average or change weights; with `written`, the model takes over
  /// the changes at its end.
  MasterWeights::Shown shown(
      MasterWeights::Shown::Use use = MasterWeights::Shown::Use::read) const {
    return MasterWeights::Shown(masters_.get(), use);
  }

 private:
  torch::Device device_;
  torch::ScalarType dtype_;
  std::unique_ptr<GradScaler> scaler_;
  std::unique_ptr<MasterWeights> masters_;
  bool weights_are_half_ = false;
};

}  // namespace gradus
