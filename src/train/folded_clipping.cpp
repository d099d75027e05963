#include "train/folded_clipping.h"

#include <gradus/kernels/optimizer_kernels.h>

#include <algorithm>

namespace gradus {

FoldedClipping::Sight FoldedClipping::sight_of(const Callbacks& callbacks) const {
  auto sight = Sight::none;
  for (const auto& callback : callbacks) {
    if (callback->passes_pre_optimizer_step()) continue;
    if (std::find(asked_.begin(), asked_.end(), callback) != asked_.end()) return Sight::some;
    sight = Sight::unknown;
  }
  return sight;
}

void FoldedClipping::clip(const std::vector<torch::Tensor>& parameters,
                          const torch::Tensor& coefficient, const Callbacks& callbacks) {
  const auto sight = sight_of(callbacks);
  if (sight != Sight::some) coefficient_ = coefficient;
  if (sight == Sight::none) return;
  std::vector<torch::Tensor> grads;
  for (const auto& parameter : parameters) {
    auto& grad = parameter.mutable_grad();
    if (sight == Sight::unknown) {
      unclipped_.push_back(grad);
      if (grad.defined()) grad = grad.clone();
    }
    if (grad.defined()) grads.push_back(grad);
  }
  kernels::scale_(grads, coefficient);
}

std::optional<torch::Tensor> FoldedClipping::settle(const std::vector<torch::Tensor>& parameters,
                                                    const Callbacks& callbacks) {
  if (asked_ != callbacks) asked_ = callbacks;
  auto left = std::exchange(coefficient_, std::nullopt);
  if (unclipped_.empty()) return left;
  const auto unclipped = std::exchange(unclipped_, {});
  if (sight_of(callbacks) == Sight::some) return std::nullopt;
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = unclipped[i];
  return left;
}

}  // namespace gradus
