#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/stack.h>

#include <limits>

#include "kernels/operators.h"

namespace gradus::kernels::plain {

std::tuple<Tensor, Tensor, Tensor, Tensor> add_layer_norm(const OptionalTensor& residual,
                                                          const Tensor& x, const Tensor& weight,
                                                          const Tensor& bias, double eps) {
  const auto sum = residual ? x + *residual : Tensor();
  auto [out, mean, rstd] =
      at::native_layer_norm(residual ? sum : x, {x.size(-1)}, weight, bias, eps);
  return {sum, out, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> add_layer_norm_backward(const Tensor& grad_out,
                                                           const OptionalTensor& grad_sum,
                                                           const Tensor& sum, const Tensor& weight,
                                                           const Tensor& mean, const Tensor& rstd) {
  auto [to_x, to_weight, to_bias] = at::native_layer_norm_backward(
      grad_out, sum, {sum.size(-1)}, mean, rstd, weight, weight, {true, true, true});
  return {grad_sum ? to_x.add_(*grad_sum) : to_x, to_weight, to_bias};
}

std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const OptionalTensor& residual, const Tensor& x,
                                                const Tensor& weight, double eps) {
  const auto sum = residual ? x + *residual : Tensor();
  const auto& in = residual ? sum : x;
  const auto wide = in.to(torch::kFloat);
  const auto rstd = wide.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
  auto normed = wide * rstd;
  if (in.scalar_type() != torch::kFloat) normed = normed.to(in.scalar_type());
  return {sum, weight.scalar_type() == normed.scalar_type() ? normed.mul_(weight) : weight * normed,
          rstd};
}

std::tuple<Tensor, Tensor> add_rms_norm_backward(const Tensor& grad_out,
                                                 const OptionalTensor& grad_sum, const Tensor& sum,
                                                 const Tensor& weight, const Tensor& rstd) {
  const auto grad = grad_out.to(torch::kFloat);
  const auto normed = sum.to(torch::kFloat) * rstd;
  const auto to_weight = (grad * normed).view({-1, sum.size(-1)}).sum(0).to(weight.scalar_type());
  auto scaled = grad * weight.to(torch::kFloat);
  const auto projection = (scaled * normed).mean(-1, /*keepdim=*/true);
  auto to_x = scaled.sub_(normed * projection).mul_(rstd).to(sum.scalar_type());
  return {grad_sum ? to_x.add_(*grad_sum) : to_x, to_weight};
}

Tensor swiglu(const Tensor& gate, const Tensor& up) { return at::silu(gate).mul_(up); }

std::tuple<Tensor, Tensor, Tensor> swiglu_backward(const Tensor& grad, const Tensor& gate,
                                                   const Tensor& up, bool product) {
  auto silu = at::silu(gate);
  auto to_gate = at::silu_backward(grad * up, gate);
  if (!product) return {to_gate, silu.mul_(grad), Tensor()};
  return {to_gate, silu * grad, silu * up};
}

void swiglu_backward_(const Tensor& grad, Tensor gate, Tensor up) {
  const auto [to_gate, to_up, none] = swiglu_backward(grad, gate, up, false);
  gate.copy_(to_gate);
  up.copy_(to_up);
}

Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, bool inverse) {
  const auto direction = inverse ? -1.0 : 1.0;
  const auto half = cos.size(-1), width = x.size(-1);
  const auto a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  auto result = at::empty_like(x, at::MemoryFormat::Contiguous);
  auto first = result.narrow(-1, 0, half), second = result.narrow(-1, half, half);
  torch::mul_out(first, a, cos).addcmul_(b, sin, -direction);
  torch::mul_out(second, b, cos).addcmul_(a, sin, direction);
  if (2 * half < width)
    result.narrow(-1, 2 * half, width - 2 * half).copy_(x.narrow(-1, 2 * half, width - 2 * half));
  return result;
}

std::tuple<Tensor, Tensor> rotary(const Tensor& query, const Tensor& key, const Tensor& cos,
                                  const Tensor& sin, bool inverse) {
  return {rotate(query, cos, sin, inverse), rotate(key, cos, sin, inverse)};
}

void cross_entropy_(Tensor logits, const Tensor& labels, const Tensor& scale, Tensor losses,
                    int64_t classes, int64_t ignore_index, bool gradient) {
  const auto real = logits.narrow(1, 0, classes).to(torch::kFloat);
  const auto kept = labels.ne(ignore_index), known = labels.ge(0).logical_and_(labels.lt(classes));
  const auto targets = labels.masked_fill(known.logical_not(), 0).unsqueeze(1);
  const auto normaliser = real.logsumexp(1, /*keepdim=*/true);
  const auto unknown = kept.logical_and(known.logical_not());
  constexpr auto kNan = std::numeric_limits<double>::quiet_NaN();
  losses.copy_((normaliser - real.gather(1, targets))
                   .squeeze(1)
                   .masked_fill_(unknown, kNan)
                   .masked_fill_(kept.logical_not(), 0.0));
  if (!gradient) return;
  auto grads = (real - normaliser).exp_().mul_(scale);
  grads.scatter_add_(1, targets, scale.neg().reshape({1, 1}).expand_as(targets));
  grads.masked_fill_(unknown.unsqueeze(1), kNan).masked_fill_(kept.logical_not().unsqueeze(1), 0.0);
  logits.narrow(1, 0, classes).copy_(grads);
  logits.narrow(1, classes, logits.size(1) - classes).zero_();
}

void token_scores_(Tensor logits, const Tensor& labels, Tensor scores,
                   const OptionalTensor& factors, const OptionalTensor& entropy_factors,
                   double temperature, int64_t classes, int64_t ignore_index, bool weighted) {
  const auto real = logits.narrow(1, 0, classes).to(torch::kFloat) / temperature;
  const auto ignored = labels.eq(ignore_index),
             known = labels.ge(0).logical_and_(labels.lt(classes));
  const auto targets = labels.masked_fill(known.logical_not(), 0).unsqueeze(1);
  const auto unknown = ignored.logical_or(known).logical_not_();
  constexpr auto kNan = std::numeric_limits<double>::quiet_NaN();
  const auto logs = real.log_softmax(1), shares = logs.exp();
  const auto log_probs = logs.gather(1, targets).squeeze(1).masked_fill_(unknown, kNan);
  const auto entropy = (shares * logs).sum(1).neg_();
  const auto put = [&](TokenScore which, const Tensor& values) {
    scores.select(1, which).copy_(values.masked_fill(ignored, 0));
  };
  put(kLogProb, log_probs);
  put(kEntropy, entropy);
  put(kMeanLogit, real.mean(1));
  put(kIsTop1, real.argmax(1).eq(labels));
  put(kLogSumSqProbs, (2 * logs).logsumexp(1));
  if (!factors) return;
  auto scale = factors->masked_fill(unknown, kNan);
  if (weighted) scale = scale * log_probs.exp();
  scale = scale.unsqueeze(1);
  auto grads = -shares * scale;
  grads.scatter_add_(1, targets, scale);
  if (entropy_factors)
    grads.sub_(shares * (logs + entropy.unsqueeze(1)) * entropy_factors->unsqueeze(1));
  grads.div_(temperature).masked_fill_(ignored.unsqueeze(1), 0.0);
  logits.narrow(1, 0, classes).copy_(grads);
  logits.narrow(1, classes, logits.size(1) - classes).zero_();
}

Tensor pack_heads(const Tensor& query, const Tensor& key, const Tensor& value) {
  return at::stack({query, key, value}, 2);
}

Tensor column_sum(const Tensor& x) { return x.sum(0); }

void adamw_(at::TensorList masters, at::TensorList weights, at::TensorList grads,
            at::TensorList exp_avg, at::TensorList exp_avg_sq, const Tensor& lr, const Tensor& step,
            const OptionalTensor& clip_coef, const OptionalTensor& grad_scale,
            const OptionalTensor& found_inf, double beta1, double beta2, double eps,
            double weight_decay, bool maximize) {
  // the gradients are read only, so that a further use sees them as they were
  std::vector<Tensor> wide;
  for (const auto& grad : grads) {
    auto scaled = grad.to(torch::kFloat);
    if (grad_scale) scaled = scaled / *grad_scale;
    if (clip_coef) scaled = scaled * *clip_coef;
    wide.push_back(std::move(scaled));
  }
  // ATen's kernels test for exactly 1
  const auto stop =
      found_inf ? OptionalTensor(found_inf->ne(0).to(torch::kFloat).reshape({1})) : std::nullopt;
  const std::vector<Tensor> steps(masters.size(), step);
  at::_fused_adamw_(masters, wide, exp_avg, exp_avg_sq, {}, steps, lr, beta1, beta2, weight_decay,
                    eps, /*amsgrad=*/false, maximize, std::nullopt, stop);
  if (weights.empty()) return;
  at::_foreach_copy_(weights, masters);
}

Tensor grad_norm(at::TensorList grads) {
  std::vector<Tensor> norms;
  for (const auto& grad : grads)
    norms.push_back(at::linalg_vector_norm(grad, 2, std::nullopt, false, torch::kFloat));
  return at::linalg_vector_norm(at::stack(norms), 2);
}

void scale_(at::TensorList tensors, const Tensor& factor) {
  for (auto tensor : tensors) tensor.mul_(factor.to(tensor.scalar_type()));
}

}  // namespace gradus::kernels::plain
