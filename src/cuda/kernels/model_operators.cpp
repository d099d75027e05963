#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "cuda/kernels/tensor_arguments.h"

// The kernels of a model's forward and backward pass as operators for CUDA tensors; schemas and
// plain forms are in src/kernels.
namespace gradus::cuda {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

void check_norm(const Tensor& x, const Tensor& weight) {
  const auto width = x.size(-1);
  TORCH_CHECK(x.is_contiguous() && width % 8 == 0 && width <= kMaxNormWidth && weight.dim() == 1 &&
                  weight.size(0) == width && weight.is_contiguous() &&
                  weight.scalar_type() == x.scalar_type(),
              "gradus norm: expected contiguous rows with a width that is a multiple of 8 up to ",
              kMaxNormWidth, " and a weight of that width, received ", x.sizes(), " and ",
              weight.sizes());
}

Tensor floats(int64_t count, const Tensor& like) {
  return at::empty({count}, like.options().dtype(at::kFloat));
}

/// Both norms; an undefined bias means RMSNorm, whose mean stays undefined.
std::tuple<Tensor, Tensor, Tensor, Tensor> any_norm(const OptionalTensor& residual, const Tensor& x,
                                                    const Tensor& weight, const Tensor& bias,
                                                    double eps) {
  check_norm(x, weight);
  if (residual) check_same(x, *residual, "gradus norm, residual");
  if (bias.defined()) check_same(weight, bias, "gradus norm, bias");
  const c10::cuda::CUDAGuard device(x.device());
  const auto rows = x.numel() / x.size(-1);
  const auto sum = residual ? at::empty_like(x) : Tensor(), out = at::empty_like(x);
  const auto mean = bias.defined() ? floats(rows, x) : Tensor(), rstd = floats(rows, x);
  NormForward norm{};
  norm.type = element_of(x);
  norm.residual = residual ? residual->const_data_ptr() : nullptr;
  norm.x = x.const_data_ptr();
  norm.weight = weight.const_data_ptr();
  norm.bias = bias.defined() ? bias.const_data_ptr() : nullptr;
  norm.sum = residual ? sum.mutable_data_ptr() : nullptr;
  norm.out = out.mutable_data_ptr();
  norm.mean = mean.defined() ? mean.mutable_data_ptr<float>() : nullptr;
  norm.rstd = rstd.mutable_data_ptr<float>();
  norm.rows = rows;
  norm.width = int(x.size(-1));
  norm.eps = float(eps);
  C10_CUDA_CHECK(norm_forward(norm, stream_of(x)));
  return {sum, out, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> any_norm_backward(const Tensor& grad_out,
                                                     const OptionalTensor& grad_sum,
                                                     const Tensor& sum, const Tensor& weight,
                                                     const Tensor& mean, const Tensor& rstd) {
  check_norm(sum, weight);
  check_same(sum, grad_out, "gradus norm, gradient");
  if (grad_sum) check_same(sum, *grad_sum, "gradus norm, gradient of the sum");
  const c10::cuda::CUDAGuard device(sum.device());
  const auto rows = sum.numel() / sum.size(-1);
  const auto to_x = at::empty_like(sum), to_weight = at::empty_like(weight),
             to_bias = mean.defined() ? at::empty_like(weight) : Tensor();
  NormBackward norm{};
  norm.type = element_of(sum);
  norm.grad_out = grad_out.const_data_ptr();
  norm.grad_sum = grad_sum ? grad_sum->const_data_ptr() : nullptr;
  norm.sum = sum.const_data_ptr();
  norm.weight = weight.const_data_ptr();
  norm.mean = mean.defined() ? mean.const_data_ptr<float>() : nullptr;
  norm.rstd = rstd.const_data_ptr<float>();
  norm.grad_x = to_x.mutable_data_ptr();
  norm.grad_weight = to_weight.mutable_data_ptr();
  norm.grad_bias = to_bias.defined() ? to_bias.mutable_data_ptr() : nullptr;
  norm.rows = rows;
  norm.width = int(sum.size(-1));
  const auto partial = floats(norm_backward_scratch(rows, norm.width, mean.defined()), sum);
  norm.partial = partial.mutable_data_ptr<float>();
  C10_CUDA_CHECK(norm_backward(norm, stream_of(sum)));
  return {to_x, to_weight, to_bias};
}

std::tuple<Tensor, Tensor, Tensor> rms_norm_forward(const OptionalTensor& residual, const Tensor& x,
                                                    const Tensor& weight, double eps) {
  auto [sum, out, mean, rstd] = any_norm(residual, x, weight, Tensor(), eps);
  return {sum, out, rstd};
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& grad_out, const OptionalTensor& grad_sum,
                                             const Tensor& sum, const Tensor& weight,
                                             const Tensor& rstd) {
  auto [to_x, to_weight, none] = any_norm_backward(grad_out, grad_sum, sum, weight, Tensor(), rstd);
  return {to_x, to_weight};
}

void check_gates(const Tensor& gate, const Tensor& up) {
  check_same(gate, gate, "gradus swiglu, gate");
  check_same(gate, up, "gradus swiglu, up");
  TORCH_CHECK(gate.numel() % 8 == 0, "gradus swiglu: expected a multiple of 8 elements, received ",
              gate.numel());
}

Tensor swiglu_of(const Tensor& gate, const Tensor& up) {
  check_gates(gate, up);
  const c10::cuda::CUDAGuard device(gate.device());
  auto out = at::empty_like(gate);
  C10_CUDA_CHECK(swiglu_forward(element_of(gate), gate.const_data_ptr(), up.const_data_ptr(),
                                out.mutable_data_ptr(), gate.numel(), stream_of(gate)));
  return out;
}

std::tuple<Tensor, Tensor, Tensor> swiglu_backward_of(const Tensor& grad, const Tensor& gate,
                                                      const Tensor& up, bool with_product) {
  check_gates(gate, up);
  check_same(gate, grad, "gradus swiglu, gradient");
  const c10::cuda::CUDAGuard device(gate.device());
  auto to_gate = at::empty_like(gate), to_up = at::empty_like(gate);
  auto product = with_product ? at::empty_like(gate) : Tensor();
  C10_CUDA_CHECK(swiglu_backward(
      element_of(gate), grad.const_data_ptr(), gate.const_data_ptr(), up.const_data_ptr(),
      to_gate.mutable_data_ptr(), to_up.mutable_data_ptr(),
      with_product ? product.mutable_data_ptr() : nullptr, gate.numel(), stream_of(gate)));
  return {to_gate, to_up, product};
}

void swiglu_backward_over(const Tensor& grad, Tensor gate, Tensor up) {
  check_gates(gate, up);
  check_same(gate, grad, "gradus swiglu, gradient");
  const c10::cuda::CUDAGuard device(gate.device());
  C10_CUDA_CHECK(swiglu_backward(element_of(gate), grad.const_data_ptr(), gate.const_data_ptr(),
                                 up.const_data_ptr(), gate.mutable_data_ptr(),
                                 up.mutable_data_ptr(), nullptr, gate.numel(), stream_of(gate)));
}

RotaryTensor rotary_tensor(const Tensor& in, const Tensor& out) {
  TORCH_CHECK(
      in.dim() == 4 && in.stride(3) == 1 && in.stride(0) % 8 == 0 && in.stride(1) % 8 == 0 &&
          in.stride(2) % 8 == 0 && in.size(3) % 8 == 0,
      "gradus rotary: expected (batch, tokens, heads, width) in steps of 8 elements, received ",
      in.sizes(), " with strides ", in.strides());
  return {in.const_data_ptr(), out.mutable_data_ptr(), in.stride(0),
          in.stride(1),        in.stride(2),           int(in.size(2))};
}

std::tuple<Tensor, Tensor> rotary_of(const Tensor& query, const Tensor& key, const Tensor& cos,
                                     const Tensor& sin, bool inverse) {
  check_same(cos, sin, "gradus rotary, sin");
  const auto batch = query.size(0), tokens = query.size(1);
  TORCH_CHECK(cos.is_contiguous() && cos.scalar_type() == at::kFloat && cos.size(-1) % 8 == 0 &&
                  2 * cos.size(-1) <= query.size(3) && (cos.size(0) == 1 || cos.size(0) == batch) &&
                  cos.size(1) == tokens && key.size(0) == batch && key.size(1) == tokens &&
                  key.size(3) == query.size(3) && key.scalar_type() == query.scalar_type(),
              "gradus rotary: the angles ", cos.sizes(), ", query ", query.sizes(), " and key ",
              key.sizes(), " do not fit");
  const c10::cuda::CUDAGuard device(query.device());
  auto out_query = at::empty(query.sizes(), query.options()),
       out_key = at::empty(key.sizes(), key.options());
  Rotary work{};
  work.type = element_of(query);
  work.query = rotary_tensor(query, out_query);
  work.key = rotary_tensor(key, out_key);
  work.cos = cos.const_data_ptr<float>();
  work.sin = sin.const_data_ptr<float>();
  work.batch = batch;
  work.tokens = tokens;
  work.angle_rows = cos.size(0);
  work.width = int(query.size(3));
  work.rotated = int(2 * cos.size(-1));
  work.direction = inverse ? -1.0f : 1.0f;
  C10_CUDA_CHECK(rotary(work, stream_of(query)));
  return {out_query, out_key};
}

Tensor pack_heads_of(const Tensor& query, const Tensor& key, const Tensor& value) {
  const c10::cuda::CUDAGuard device(query.device());
  auto out =
      at::empty({query.size(0), query.size(1), 3, query.size(2), query.size(3)}, query.options());
  PackHeads work{};
  work.type = element_of(query);
  const Tensor parts[3] = {query, key, value};
  for (int i = 0; i < 3; ++i) {
    TORCH_CHECK(parts[i].sizes() == query.sizes() &&
                    parts[i].scalar_type() == query.scalar_type() &&
                    parts[i].device() == query.device(),
                "gradus pack_heads: query ", query.sizes(), " and part ", i, " ", parts[i].sizes(),
                " do not fit");
    const auto tensor = rotary_tensor(parts[i], out);  // checks the strides
    work.in[i] = tensor.in;
    work.batch_stride[i] = tensor.batch_stride;
    work.token_stride[i] = tensor.token_stride;
    work.head_stride[i] = tensor.head_stride;
  }
  work.out = out.mutable_data_ptr();
  work.batch = query.size(0);
  work.tokens = query.size(1);
  work.heads = int(query.size(2));
  work.width = int(query.size(3));
  C10_CUDA_CHECK(pack_heads(work, stream_of(query)));
  return out;
}

void cross_entropy_of(Tensor logits, const Tensor& labels, const Tensor& scale, Tensor losses,
                      int64_t classes, int64_t ignore_index, bool gradient) {
  TORCH_CHECK(logits.dim() == 2 && logits.is_contiguous() && logits.size(1) % 8 == 0 &&
                  classes <= logits.size(1) && classes > 0 && labels.scalar_type() == at::kLong &&
                  labels.is_contiguous() && labels.numel() == logits.size(0) &&
                  losses.scalar_type() == at::kFloat && losses.is_contiguous() &&
                  losses.numel() == logits.size(0) && labels.device() == logits.device() &&
                  losses.device() == logits.device(),
              "gradus cross_entropy_: logits ", logits.sizes(), ", labels ", labels.sizes(),
              " and losses ", losses.sizes(), " do not fit");
  const c10::cuda::CUDAGuard device(logits.device());
  CrossEntropy work{};
  work.type = element_of(logits);
  work.logits = logits.mutable_data_ptr();
  work.labels = labels.const_data_ptr<int64_t>();
  work.scale = scalar_on(scale, logits.device(), "gradus cross_entropy_, scale");
  work.losses = losses.mutable_data_ptr<float>();
  work.rows = logits.size(0);
  work.columns = logits.size(1);
  work.classes = classes;
  work.ignore_index = ignore_index;
  work.gradient = gradient;
  C10_CUDA_CHECK(cross_entropy(work, stream_of(logits)));
}

void token_scores_of(Tensor logits, const Tensor& labels, Tensor scores,
                     const OptionalTensor& factors, const OptionalTensor& entropy_factors,
                     double temperature, int64_t classes, int64_t ignore_index, bool weighted) {
  const auto is_column = [&](const Tensor& x, at::ScalarType type) {
    return x.scalar_type() == type && x.is_contiguous() && x.numel() == logits.size(0) &&
           x.device() == logits.device();
  };
  TORCH_CHECK(logits.dim() == 2 && logits.is_contiguous() && logits.size(1) % 8 == 0 &&
                  classes <= logits.size(1) && classes > 0 && is_column(labels, at::kLong) &&
                  scores.scalar_type() == at::kFloat && scores.is_contiguous() &&
                  scores.numel() == logits.size(0) * kTokenScores &&
                  scores.device() == logits.device() &&
                  (!factors || is_column(*factors, at::kFloat)) &&
                  (!entropy_factors || is_column(*entropy_factors, at::kFloat)),
              "gradus token_scores_: logits ", logits.sizes(), ", labels ", labels.sizes(),
              " and scores ", scores.sizes(), " do not fit");
  const c10::cuda::CUDAGuard device(logits.device());
  TokenScores work{};
  work.type = element_of(logits);
  work.logits = logits.mutable_data_ptr();
  work.labels = labels.const_data_ptr<int64_t>();
  work.scores = scores.mutable_data_ptr<float>();
  work.factors = factors ? factors->const_data_ptr<float>() : nullptr;
  work.entropy_factors = entropy_factors ? entropy_factors->const_data_ptr<float>() : nullptr;
  work.rows = logits.size(0);
  work.columns = logits.size(1);
  work.classes = classes;
  work.ignore_index = ignore_index;
  work.factor = float(1.0 / temperature);
  work.weighted = weighted;
  C10_CUDA_CHECK(token_scores(work, stream_of(logits)));
}

Tensor column_sum_of(const Tensor& x) {
  TORCH_CHECK(x.dim() == 2, "gradus column_sum: expected a matrix, received ", x.sizes());
  if (x.size(1) % 8 != 0 || !x.is_contiguous() || x.numel() == 0 ||
      reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 != 0)
    return x.sum(0);
  const c10::cuda::CUDAGuard device(x.device());
  auto out = at::empty({x.size(1)}, x.options());
  const auto partial = floats(column_sum_scratch(x.size(0), x.size(1)), x);
  C10_CUDA_CHECK(column_sum(element_of(x), x.const_data_ptr(), out.mutable_data_ptr(),
                            partial.mutable_data_ptr<float>(), x.size(0), x.size(1), stream_of(x)));
  return out;
}

}  // namespace
}  // namespace gradus::cuda

TORCH_LIBRARY_IMPL(gradus, CUDA, library) {
  library.impl("add_layer_norm", gradus::cuda::any_norm);
  library.impl("add_layer_norm_backward", gradus::cuda::any_norm_backward);
  library.impl("add_rms_norm", gradus::cuda::rms_norm_forward);
  library.impl("add_rms_norm_backward", gradus::cuda::rms_norm_backward);
  library.impl("swiglu", gradus::cuda::swiglu_of);
  library.impl("swiglu_backward", gradus::cuda::swiglu_backward_of);
  library.impl("swiglu_backward_", gradus::cuda::swiglu_backward_over);
  library.impl("rotary", gradus::cuda::rotary_of);
  library.impl("pack_heads", gradus::cuda::pack_heads_of);
  library.impl("cross_entropy_", gradus::cuda::cross_entropy_of);
  library.impl("token_scores_", gradus::cuda::token_scores_of);
  library.impl("column_sum", gradus::cuda::column_sum_of);
}
