#include <gradus/engine/precision.h>

#include <algorithm>

namespace gradus {

Precision::Precision(torch::Device device, torch::ScalarType dtype)
    : device_(device), dtype_(dtype) {}

device::AutocastGuard Precision::guard() const {
  return {device_.type(), has_masters() ? torch::kFloat : dtype_};
}

Batch Precision::cast(Batch inputs, std::span<const std::string> keep) const {
  if (!has_masters()) return inputs;
  for (auto& [name, value] : inputs) {
    const bool is_kept = std::find(keep.begin(), keep.end(), name) != keep.end();
    if (!is_kept && value.defined() && value.scalar_type() == torch::kFloat)
      value = value.to(torch::kBFloat16);
  }
  return inputs;
}

void Precision::restore(ModelOutput& outputs) const {
  if (!is_mixed()) return;
  for (const auto& [name, value] : ModelOutput(outputs)) {
    if (!value.defined()) continue;
    if (value.scalar_type() == torch::kHalf || value.scalar_type() == torch::kBFloat16)
      outputs.set(name, value.to(torch::kFloat));
  }
}

void Precision::begin_run(GradScalerOptions options) {
  scaler_ = dtype_ == torch::kHalf ? std::make_unique<GradScaler>(device_, options) : nullptr;
}

torch::Tensor Precision::scale(const torch::Tensor& loss) {
  return scaler_ ? scaler_->scale(loss) : loss;
}

void Precision::hold_masters(torch::nn::Module& model, Optimizer& optimizer) {
  masters_ = std::make_unique<MasterWeights>(model, device_);
  masters_->attach(optimizer);
}

}  // namespace gradus
