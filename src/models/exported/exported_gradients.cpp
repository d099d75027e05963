#include "models/exported/exported_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_foreach_mul.h>
#include <gradus/core/error.h>
#include <torch/csrc/autograd/custom_function.h>

#include <unordered_set>

namespace gradus {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What travels from the forward to the backward pass.
struct ExportedGradients : torch::CustomClassHolder {
  std::vector<Tensor> values;
  bool taken = false;
};

/// Gradients that share memory would be added to each other: all but the first become copies.
void part_shared_memory(std::vector<Tensor>& gradients) {
  std::unordered_set<const void*> seen;
  for (auto& gradient : gradients)
    if (gradient.defined() && gradient.numel() > 0 &&
        !seen.insert(gradient.storage().unsafeGetStorageImpl()).second)
      gradient = gradient.clone();
}

struct ExportedLoss : torch::autograd::Function<ExportedLoss> {
  static Tensor forward(AutogradContext* context, const Tensor& loss,
                        c10::intrusive_ptr<ExportedGradients> gradients,
                        at::TensorList /*parameters*/) {
    context->saved_data["gradients"] = c10::IValue::make_capsule(std::move(gradients));
    return loss.view_as(loss);
  }

  static variable_list backward(AutogradContext* context, const variable_list& given) {
    const auto capsule = context->saved_data["gradients"].toCapsule();
    auto& held = static_cast<ExportedGradients&>(*capsule);
    if (held.taken)
      throw Error("G-EXPORT-6", ErrorKind::training,
                  "the gradients of an exported step were asked for a second time",
                  "Run forward again before each backward pass; retain_graph does not help here.");
    held.taken = true;
    const torch::NoGradGuard no_grad;
    std::vector<Tensor> scaled;
    for (const auto& gradient : held.values)
      if (gradient.defined()) scaled.push_back(gradient);
    const auto& factor = given[0];
    if (!factor.is_cpu() || factor.item<double>() != 1.0) {
      // All gradients of a model have one type; others would be multiplied one by one anyway.
      at::_foreach_mul_(scaled, factor.to(scaled.empty() ? at::kFloat : scaled[0].scalar_type()));
    }
    scaled.clear();
    variable_list result(2);  // of the loss, and of what is no tensor
    for (auto& gradient : held.values) result.push_back(std::move(gradient));
    held.values.clear();
    return result;
  }
};

}  // namespace

Tensor loss_with_gradients(Tensor loss, const std::vector<Tensor>& parameters,
                           std::vector<Tensor> gradients) {
  part_shared_memory(gradients);
  auto held = c10::make_intrusive<ExportedGradients>();
  held->values = std::move(gradients);
  return ExportedLoss::apply(loss, std::move(held), at::TensorList(parameters));
}

}  // namespace gradus
