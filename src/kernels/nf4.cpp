#include "kernels/nf4.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace gradus::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct StandIns {
  std::shared_mutex mutex;
  std::unordered_map<const void*, const Nf4Matrix*> matrices;  ///< by the stand-in's identity
  std::atomic<int64_t> count = 0;
};

StandIns& stand_ins() {
  static StandIns all;
  return all;
}

/// Null for an ordinary tensor.
const Nf4Matrix* matrix_of(const Tensor& weight) {
  auto& all = stand_ins();
  if (all.count.load(std::memory_order_relaxed) == 0) return nullptr;
  const std::shared_lock lock(all.mutex);
  const auto found = all.matrices.find(weight.unsafeGetTensorImpl());
  return found == all.matrices.end() ? nullptr : found->second;
}

/// Rows of a block each; the last one is filled up with zeros.
Tensor rows_of_blocks(const Tensor& flat) {
  const auto missing = (kNf4Block - flat.numel() % kNf4Block) % kNf4Block;
  return (missing == 0 ? flat : at::constant_pad_nd(flat, {0, missing})).view({-1, kNf4Block});
}

struct Nf4LinearFunction : torch::autograd::Function<Nf4LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const OptionalTensor& bias) {
    context->save_for_backward({weight});
    context->saved_data["biased"] = bias.has_value();
    return at::linear(x, dense(weight, x.scalar_type()), bias);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "gradus: a layer in 4 bits has no second derivative");
    const auto weight = context->get_saved_variables()[0];
    const auto grad = grads[0].reshape({-1, grads[0].size(-1)});
    Tensor to_x, to_bias;
    if (context->needs_input_grad(0)) {
      auto sizes = grads[0].sizes().vec();
      sizes.back() = weight.size(1);
      to_x = at::mm(grad, dense(weight, grad.scalar_type())).view(sizes);
    }
    if (context->saved_data["biased"].toBool() && context->needs_input_grad(2))
      to_bias = ops::column_sum(grad.contiguous());
    return {to_x, Tensor(), to_bias};
  }
};

}  // namespace

Tensor nf4_values() {
  // The quantiles of the normal distribution that QLoRA's paper gives, as bitsandbytes has them.
  return torch::tensor({-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
                        -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
                        0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f,
                        0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
                        0.7229568362236023f, 1.0f});
}

Nf4Matrix nf4_quantized(const Tensor& matrix) {
  TORCH_CHECK(matrix.numel() % 2 == 0,
              "gradus nf4_quantized: expected an even number of elements, received ",
              matrix.sizes());
  const at::NoGradGuard no_grad;
  const auto values = nf4_values();
  const auto bounds = ((values.slice(0, 0, 15) + values.slice(0, 1)) / 2).to(matrix.device());
  const auto blocks = rows_of_blocks(matrix.detach().reshape({-1}).to(at::kFloat));
  Nf4Matrix result;
  result.sizes = matrix.sizes().vec();
  result.absmax = blocks.abs().amax(1);
  const auto scaled =
      (blocks * (1.0 / result.absmax.clamp_min(1e-38)).unsqueeze(1)).clamp(-1, 1).reshape({-1});
  const auto codes = at::bucketize(scaled.slice(0, 0, matrix.numel()), bounds, /*out_int32=*/true)
                         .to(at::kByte)
                         .view({-1, 2});
  result.packed = codes.select(1, 0).mul(16).add(codes.select(1, 1)).unsqueeze(1);
  return result;
}

Tensor nf4_dense(const Nf4Matrix& matrix, at::ScalarType dtype) {
  const auto given = [](const Tensor& tensor) {
    return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
  };
  return ops::nf4_dense(matrix.packed, matrix.absmax, given(matrix.codes), given(matrix.values),
                        given(matrix.offset), matrix.sizes, dtype);
}

namespace plain {

Tensor nf4_dense(const Tensor& packed, const Tensor& absmax, const OptionalTensor& codes,
                 const OptionalTensor& values, const OptionalTensor& offset, at::IntArrayRef sizes,
                 at::ScalarType type) {
  auto scales = absmax;
  if (codes) {
    const auto numbers = values->index_select(0, codes->to(at::kInt));
    const auto missing = (256 - numbers.numel() % 256) % 256;
    scales = (at::constant_pad_nd(numbers, {0, missing}).view({-1, 256}) * absmax.unsqueeze(1))
                 .reshape({-1})
                 .slice(0, 0, numbers.numel()) +
             *offset;
  }
  const auto bytes = packed.reshape({-1});
  const auto both = at::stack({bytes.div(16, "floor"), bytes.remainder(16)}, 1).reshape({-1});
  const auto numbers = nf4_values().to(packed.device()).index_select(0, both.to(at::kInt));
  const auto all = (rows_of_blocks(numbers) * scales.unsqueeze(1)).reshape({-1});
  return all.slice(0, 0, numbers.numel()).reshape(sizes).to(type);
}

}  // namespace plain

Nf4Weight::Nf4Weight(Nf4Matrix matrix) : matrix_(std::move(matrix)) {
  stand_in_ = at::zeros({1}, matrix_.packed.options().dtype(at::kBFloat16)).expand(matrix_.sizes);
  auto& all = stand_ins();
  const std::unique_lock lock(all.mutex);
  all.matrices.emplace(stand_in_.unsafeGetTensorImpl(), &matrix_);
  ++all.count;
}

Nf4Weight::~Nf4Weight() {
  auto& all = stand_ins();
  const std::unique_lock lock(all.mutex);
  all.matrices.erase(stand_in_.unsafeGetTensorImpl());
  --all.count;
}

bool Nf4Weight::is_one(const Tensor& weight) { return matrix_of(weight) != nullptr; }

Tensor dense(const Tensor& weight, at::ScalarType dtype) {
  const auto* matrix = matrix_of(weight);
  if (matrix != nullptr) return nf4_dense(*matrix, dtype);
  TORCH_CHECK(weight.dim() != 2 || weight.stride(0) != 0 || weight.size(0) <= 1,
              "gradus: a copy of a weight in 4 bits cannot stand for it");
  return weight;
}

Tensor nf4_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return Nf4LinearFunction::apply(x, weight, bias.defined() ? OptionalTensor(bias) : std::nullopt);
}

}  // namespace gradus::kernels
