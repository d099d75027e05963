#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_ctc_loss_backward.h>
#include <ATen/ops/ones_like.h>

#include "kernels/operators.h"

namespace gradus::kernels::plain {

std::tuple<Tensor, Tensor> ctc_loss_with_gradient(const Tensor& log_probs, const Tensor& targets,
                                                  const Tensor& input_lengths,
                                                  const Tensor& target_lengths, int64_t blank,
                                                  bool zero_infinity) {
  const auto on_host = [](const Tensor& lengths) {
    const auto values = lengths.to(torch::kCPU, torch::kLong).contiguous();
    return std::vector<int64_t>(values.const_data_ptr<int64_t>(),
                                values.const_data_ptr<int64_t>() + values.numel());
  };
  const auto frames = on_host(input_lengths), symbols = on_host(target_lengths);
  auto [losses, alpha] = at::_ctc_loss(log_probs, targets, frames, symbols, blank, zero_infinity);
  const auto gradient = at::_ctc_loss_backward(at::ones_like(losses), log_probs, targets, frames,
                                               symbols, losses, alpha, blank, zero_infinity);
  if (zero_infinity) losses = losses.masked_fill(losses.isinf(), 0);
  return {losses, gradient.contiguous()};
}

}  // namespace gradus::kernels::plain
