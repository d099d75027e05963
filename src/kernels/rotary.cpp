#include <gradus/kernels/fused.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/operators.h"

namespace gradus::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The kernel reads eight channels at a time: strides and sizes must allow it.
bool is_readable(const Tensor& x) {
  if (x.stride(3) != 1 || reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 != 0) return false;
  return x.stride(0) % 8 == 0 && x.stride(1) % 8 == 0 && x.stride(2) % 8 == 0;
}

bool rotation_fits(const Tensor& query, const Tensor& key, const Tensor& cos) {
  if (query.scalar_type() != key.scalar_type() || !takes_kernel_of_any_layout(query) ||
      query.numel() == 0 || key.numel() == 0)
    return false;
  return !query.is_cuda() ||
         (cos.size(-1) % 8 == 0 && query.size(3) % 8 == 0 && key.size(3) == query.size(3));
}

Tensor readable(const Tensor& x) { return !x.is_cuda() || is_readable(x) ? x : x.contiguous(); }

/// Both tensors at once. Turning is linear, so its backward, the turn the other way round, can be
/// differentiated by the same function.
struct RotaryFunction : torch::autograd::Function<RotaryFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& query, const Tensor& key,
                               const Tensor& cos, const Tensor& sin, bool inverse) {
    context->save_for_backward({cos, sin});
    context->saved_data["inverse"] = inverse;
    const auto [turned_query, turned_key] =
        ops::rotary(readable(query), readable(key), cos, sin, inverse);
    return {turned_query, turned_key};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto back =
        apply(grads[0], grads[1], saved[0], saved[1], !context->saved_data["inverse"].toBool());
    return {back[0], back[1], Tensor(), Tensor(), Tensor()};
  }
};

/// One tensor in ATen operations. Keeps only the angles.
struct PlainRotaryFunction : torch::autograd::Function<PlainRotaryFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& cos,
                        const Tensor& sin, bool inverse) {
    context->save_for_backward({cos, sin});
    context->saved_data["inverse"] = inverse;
    return plain::rotate(x, cos, sin, inverse);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    return {apply(grads[0], saved[0], saved[1], !context->saved_data["inverse"].toBool()), Tensor(),
            Tensor(), Tensor()};
  }
};

Tensor wide_angles(const Tensor& angles) { return angles.to(torch::kFloat).contiguous(); }

}  // namespace

Rotated rotary(const Tensor& query, const Tensor& key, const Tensor& cos, const Tensor& sin) {
  if (rotation_fits(query, key, cos)) {
    auto both = RotaryFunction::apply(query, key, wide_angles(cos), wide_angles(sin), false);
    return {both[0], both[1]};
  }
  return {PlainRotaryFunction::apply(query, cos, sin, false),
          PlainRotaryFunction::apply(key, cos, sin, false)};
}

}  // namespace gradus::kernels
