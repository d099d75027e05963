#include "kernels/fp8.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <gradus/kernels/fp8.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace gradus::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ChosenWeights {
  std::shared_mutex mutex;
  std::unordered_map<const void*, int> counts;  ///< by the tensor's identity
  std::atomic<int> uses = 0;
};

ChosenWeights& chosen_weights() {
  static ChosenWeights chosen;
  return chosen;
}

constexpr int64_t kFp8Step = 16;  // what sizes are multiples of

/// A matrix whose rows can be read in vectors.
Tensor readable_rows(const Tensor& x) {
  const auto rows = x.reshape({-1, x.size(-1)});
  const bool fits = rows.stride(1) == 1 && rows.stride(0) % 8 == 0 &&
                    reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % 16 == 0;
  return fits ? rows : rows.contiguous();
}

Tensor shaped_like(const Tensor& rows, const std::vector<int64_t>& sizes) {
  auto shape = sizes;
  shape.back() = rows.size(-1);
  return rows.view(shape);
}

void refuse_second_derivative() {
  TORCH_CHECK(!at::GradMode::is_enabled(),
              "gradus: products in 8 bits have no second derivative; train without fp8");
}

/// The parts of the columns of `rows`, each with the sizes of the layer's input before the last.
variable_list parts_of_columns(const Tensor& rows, const std::vector<int64_t>& widths,
                               const std::vector<int64_t>& sizes) {
  variable_list parts;
  int64_t first = 0;
  for (const auto width : widths) {
    parts.push_back(shaped_like(rows.narrow(1, first, width), sizes));
    first += width;
  }
  return parts;
}

/// Keeps input and weights in 8 bits, each as its gradient's product reads it.
struct Fp8LinearFunction : torch::autograd::Function<Fp8LinearFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& x, at::TensorList weights,
                               at::TensorList biases, bool in_out, bool graph) {
    const at::AutoDispatchBelowADInplaceOrView
        below_autograd;  // the parts are no views to autograd
    const bool for_x = graph && x.requires_grad(),
               for_weights = graph && std::any_of(weights.begin(), weights.end(),
                                                  [](auto& each) { return each.requires_grad(); });
    const auto sizes = x.sizes().vec();
    const auto input = ops::fp8_cast({readable_rows(x)}, 0, false, true, for_weights, {});
    // The forward product reads the weight as (out, in), that of the input's gradient as (in, out).
    const auto weight = in_out ? ops::fp8_cast(weights, 1, false, for_x, true, {})
                               : ops::fp8_cast(weights, 0, false, true, for_x, {});
    const auto& [weight_rows, weight_columns, weight_scale] = weight;
    const auto bias = biases.empty() ? OptionalTensor() : OptionalTensor(at::cat(biases));
    const auto y = ops::fp8_product(std::get<0>(input), in_out ? weight_columns : weight_rows,
                                    std::get<2>(input), weight_scale, bias, /*fast=*/true);
    std::vector<int64_t> widths;
    for (const auto& each : weights) widths.push_back(each.size(in_out ? 1 : 0));
    context->saved_data["sizes"] = sizes;
    context->saved_data["widths"] = widths;
    context->saved_data["in_out"] = in_out;
    context->saved_data["biased"] = !biases.empty();
    context->save_for_backward({std::get<1>(input), std::get<2>(input),
                                in_out ? weight_rows : weight_columns, weight_scale});
    return parts_of_columns(y, widths, sizes);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative();
    const auto saved = context->get_saved_variables();
    const auto &columns = saved[0], &input_scale = saved[1], &turned_weight = saved[2],
               &weight_scale = saved[3];
    const auto widths = context->saved_data["widths"].toIntVector();
    const bool in_out = context->saved_data["in_out"].toBool(),
               biased = context->saved_data["biased"].toBool();
    const bool for_weights = columns.defined();
    for (auto& grad : grads) grad = readable_rows(grad);
    const auto [grad_rows, grad_columns, grad_scale] =
        ops::fp8_cast(grads, 1, true, context->needs_input_grad(0), for_weights, {});
    variable_list result(1);
    if (context->needs_input_grad(0))
      result[0] = shaped_like(ops::fp8_product(grad_rows, turned_weight, grad_scale, weight_scale,
                                               std::nullopt, /*fast=*/false),
                              context->saved_data["sizes"].toIntVector());
    Tensor whole;
    if (for_weights)
      whole = in_out ? ops::fp8_product(columns, grad_columns, input_scale, grad_scale,
                                        std::nullopt, /*fast=*/false)
                     : ops::fp8_product(grad_columns, columns, grad_scale, input_scale,
                                        std::nullopt, /*fast=*/false);
    int64_t first = 0;
    for (size_t i = 0; i < widths.size(); ++i) {
      const bool wanted = for_weights && context->needs_input_grad(1 + i);
      result.push_back(wanted ? whole.narrow(in_out ? 1 : 0, first, widths[i]) : Tensor());
      first += widths[i];
    }
    if (biased)
      for (size_t i = 0; i < widths.size(); ++i)
        result.push_back(context->needs_input_grad(1 + widths.size() + i)
                             ? ops::column_sum(grads[i].contiguous())
                             : Tensor());
    result.resize(result.size() + 2);
    return result;
  }
};

/// Keeps gate and up in bfloat16, their product and the weight in 8 bits.
struct Fp8SwigluFunction : torch::autograd::Function<Fp8SwigluFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up,
                        const Tensor& weight, const OptionalTensor& bias, bool graph) {
    const bool for_gates = graph && gate.requires_grad(),
               for_weight = graph && weight.requires_grad();
    const auto sizes = gate.sizes().vec();
    const auto [product, amax] = ops::gated_rows(readable_rows(gate), readable_rows(up));
    const auto [rows, columns, scale] = ops::fp8_cast({product}, 0, false, true, for_weight, amax);
    const auto [weight_rows, weight_columns, weight_scale] =
        ops::fp8_cast({weight}, 0, false, true, for_gates, {});
    context->save_for_backward({gate, up, columns, scale, weight_columns, weight_scale});
    context->saved_data["biased"] = bias.has_value();
    return shaped_like(ops::fp8_product(rows, weight_rows, scale, weight_scale, bias,
                                        /*fast=*/true),
                       sizes);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative();
    const auto saved = context->get_saved_variables();
    const auto &gate = saved[0], &up = saved[1], &columns = saved[2];
    const bool for_gates = saved[4].defined(), for_weight = columns.defined();
    const auto grad = readable_rows(grads[0]);
    const auto [rows, grad_columns, grad_scale] =
        ops::fp8_cast({grad}, 0, true, for_gates, for_weight, {});
    Tensor to_gate, to_up, to_weight, to_bias;
    if (for_gates) {
      const auto to_product = ops::fp8_product(rows, saved[4], grad_scale, saved[5], std::nullopt,
                                               /*fast=*/false);
      const auto both =
          ops::gated_rows_backward(to_product, readable_rows(gate), readable_rows(up));
      const auto width = gate.size(-1);
      to_gate = shaped_like(both.narrow(1, 0, width), gate.sizes().vec());
      to_up = shaped_like(both.narrow(1, width, width), gate.sizes().vec());
    }
    if (for_weight)
      to_weight = ops::fp8_product(grad_columns, columns, grad_scale, saved[3], std::nullopt,
                                   /*fast=*/false);
    if (context->saved_data["biased"].toBool() && context->needs_input_grad(3))
      to_bias = ops::column_sum(grad.contiguous());
    return {to_gate, to_up, to_weight, to_bias, Tensor()};
  }
};

}  // namespace

Fp8Weights::Fp8Weights(std::vector<Tensor> weights) : weights_(std::move(weights)) {
  auto& chosen = chosen_weights();
  const std::unique_lock lock(chosen.mutex);
  for (const auto& weight : weights_) ++chosen.counts[weight.unsafeGetTensorImpl()];
}

Fp8Weights::~Fp8Weights() {
  auto& chosen = chosen_weights();
  const std::unique_lock lock(chosen.mutex);
  for (const auto& weight : weights_) {
    const auto found = chosen.counts.find(weight.unsafeGetTensorImpl());
    if (--found->second == 0) chosen.counts.erase(found);
  }
}

Fp8Weights::Use::Use() { ++chosen_weights().uses; }
Fp8Weights::Use::~Use() { --chosen_weights().uses; }

bool takes_fp8(const Tensor& x, at::TensorList weights, bool in_out) {
  auto& chosen = chosen_weights();
  if (chosen.uses.load(std::memory_order_relaxed) == 0) return false;
  const auto width = x.size(-1);
  if (x.scalar_type() != at::kBFloat16 || width % kFp8Step != 0 || width == 0 ||
      x.numel() / width % kFp8Step != 0 || x.numel() == 0 || !takes_kernel_of_any_layout(x))
    return false;
  const std::shared_lock lock(chosen.mutex);
  return std::all_of(weights.begin(), weights.end(), [&](const Tensor& weight) {
    return chosen.counts.contains(weight.unsafeGetTensorImpl()) && weight.dim() == 2 &&
           weight.is_contiguous() && weight.scalar_type() == at::kBFloat16 &&
           weight.device() == x.device() && weight.size(in_out ? 0 : 1) == width &&
           weight.size(in_out ? 1 : 0) % kFp8Step == 0 &&
           reinterpret_cast<uintptr_t>(weight.const_data_ptr()) % 16 == 0;
  });
}

std::vector<Tensor> fp8_linear(const Tensor& x, const std::vector<Tensor>& weights,
                               const std::vector<Tensor>& biases, bool in_out) {
  return Fp8LinearFunction::apply(x, at::TensorList(weights), at::TensorList(biases), in_out,
                                  at::GradMode::is_enabled());
}

Tensor fp8_swiglu_linear(const Tensor& gate, const Tensor& up, const Tensor& weight,
                         const Tensor& bias) {
  return Fp8SwigluFunction::apply(gate, up, weight,
                                  bias.defined() ? OptionalTensor(bias) : std::nullopt,
                                  at::GradMode::is_enabled());
}

}  // namespace gradus::kernels
