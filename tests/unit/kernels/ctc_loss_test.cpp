// The operator that exported steps call, beside torch's CTC loss and its gradient.
#include <ATen/ops/ctc_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "kernels/operators.h"

namespace gradus::kernels {
namespace {

TEST(CtcLoss, LossesAndGradientsAreTorchs) {
  torch::manual_seed(3);
  const int64_t frames = 9, rows = 4, symbols = 6;
  // Of models: (rows, frames, symbols), turned.
  const auto scores = at::randn({rows, frames, symbols}).log_softmax(-1).transpose(0, 1);
  const auto targets = at::tensor({1, 2, 3, 2, 2, 0, 5, 4, 0, 1, 1, 1}, torch::kLong).view({4, 3});
  const auto target_lengths = at::tensor({3, 2, 2, 3}, torch::kLong);
  // The last row has too few frames for three equal symbols: its loss is infinite.
  const auto input_lengths = at::tensor({9, 7, 9, 4}, torch::kLong);
  const auto weights = at::tensor({0.5, 2.0, 1.0, 3.0}, torch::kFloat);
  for (const bool zero_infinity : {false, true}) {
    const auto leaf = scores.detach().requires_grad_();
    const auto wanted = at::ctc_loss(leaf, targets, input_lengths, target_lengths, 0,
                                     at::Reduction::None, zero_infinity);
    (wanted * weights).sum().backward();
    const auto [losses, gradient] = plain::ctc_loss_with_gradient(scores, targets, input_lengths,
                                                                  target_lengths, 0, zero_infinity);
    EXPECT_TRUE(losses.equal(wanted.detach())) << losses << wanted;
    const auto of_weights = gradient * weights.view({1, -1, 1});
    EXPECT_TRUE(of_weights.allclose(leaf.grad(), 1e-6, 1e-7, /*equal_nan=*/true));
    EXPECT_EQ(losses[3].isinf().item<bool>(), !zero_infinity);
    EXPECT_TRUE(gradient.is_contiguous()) << "compiled steps rely on the strides";
  }
}

}  // namespace
}  // namespace gradus::kernels
