// States of bfloat16 that are rounded by chance.
#include "optim/stochastic_rounding.h"

#include <ATen/ops/corrcoef.h>
#include <gradus/optim/anyprecision_adamw.h>
#include <gradus/optim/factory.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

namespace gradus {
namespace {

constexpr const char* kNarrow = "momentum_dtype=bfloat16,variance_dtype=bfloat16";
constexpr const char* kNarrowByChance =
    "momentum_dtype=bfloat16,variance_dtype=bfloat16,stochastic_rounding=true";

TEST(ScatteredBits, AreEvenAndDependOnTheSeedAlone) {
  const auto bits = scattered_bits(1 << 16, 7, torch::kCPU);
  EXPECT_TRUE(torch::equal(bits, scattered_bits(1 << 16, 7, torch::kCPU)));
  EXPECT_TRUE(torch::equal(bits.slice(0, 0, 100), scattered_bits(100, 7, torch::kCPU)));
  for (const int64_t shift : {0, 8, 16, 24}) {  // χ² of 255 degrees: 255 ± 23
    const auto counts = bits.bitwise_right_shift(shift).bitwise_and(255).bincount({}, 256);
    const auto chi2 = (counts - 256).square().sum().item<double>() / 256;
    EXPECT_NEAR(chi2, 255, 5 * 23) << shift;
  }
  std::vector<torch::Tensor> rows;  // of neighbouring steps and parameters, and neighbours in one
  for (const uint64_t seed : {uint64_t{7}, uint64_t{8}, uint64_t{7} | uint64_t{1} << 32})
    rows.push_back(scattered_bits(1 << 16, seed, torch::kCPU).to(torch::kDouble));
  rows.push_back(rows[0].roll(1));
  rows.push_back(bits.bitwise_and(0xFFFF).to(torch::kDouble));
  rows.push_back(rows.back().roll(1));
  const auto related = at::corrcoef(torch::stack(rows)) - torch::eye(6, torch::kDouble);
  EXPECT_LT(related.abs().max().item<double>(), 5.0 / 256);
}

TEST(RoundedByChance, IsUnbiasedAndOneOfTheTwoNeighbours) {
  torch::manual_seed(4);
  const auto numbers = torch::randn({64}) * torch::logspace(-6, 6, 64);
  const auto down = numbers.view(torch::kInt).bitwise_and(int64_t(-65536)).view(torch::kFloat);
  const auto up =
      (numbers.view(torch::kInt).bitwise_and(int64_t(-65536)) + 0x10000).view(torch::kFloat);
  auto sum = torch::zeros({64}, torch::kDouble);
  constexpr int kDraws = 4096;
  for (int i = 0; i < kDraws; ++i) {
    const auto bits = scattered_bits(64, uint64_t(i), torch::kCPU);
    const auto rounded = rounded_by_chance(numbers, bits.bitwise_right_shift(16));
    EXPECT_TRUE((rounded.eq(down) | rounded.eq(up)).all().item<bool>());
    sum += rounded.to(torch::kDouble);
  }
  const auto gap = (up - down).abs().to(torch::kDouble);
  const auto off = ((sum / kDraws - numbers.to(torch::kDouble)) / gap).abs();
  EXPECT_LT(off.max().item<double>(), 4.5 * 0.5 / 64);  // standard deviations of the mean
  const auto exact = numbers.to(torch::kBFloat16).to(torch::kFloat);
  EXPECT_TRUE(torch::equal(rounded_by_chance(exact, torch::zeros({64}, torch::kLong)), exact));
}

/// The mean of squares after so many steps with gradients of 1.
torch::Tensor square_after(int steps, const char* settings) {
  auto param = torch::zeros({4096}).requires_grad_();
  const auto optimizer =
      make_optimizer("adamw_anyprecision", {{.params = {param}}}, {.optim_args = settings});
  param.mutable_grad() = torch::ones_like(param);
  for (int i = 0; i < steps; ++i) optimizer->step();
  return optimizer->state_dict().at("state").at(0).at("exp_avg_sq").as_tensor().to(torch::kFloat);
}

TEST(AnyPrecisionAdamW, AMeanOfSquaresInBfloat16GrowsOnlyByChance) {
  const auto exact = 1 - std::pow(0.999, 1500);
  EXPECT_NEAR(square_after(1500, "").mean().item<double>(), exact, 1e-3);
  EXPECT_LT(square_after(1500, kNarrow).mean().item<double>(), 0.7 * exact);
  EXPECT_NEAR(square_after(1500, kNarrowByChance).mean().item<double>(), exact, 0.01);
}

/// A small network learns a function from noisy samples.
struct Fit {
  explicit Fit(const char* settings) {
    torch::manual_seed(5);
    net = torch::nn::Sequential(torch::nn::Linear(8, 64), torch::nn::Tanh(),
                                torch::nn::Linear(64, 1));
    optimizer = make_optimizer("adamw_anyprecision", {{.params = net->parameters()}},
                               {.learning_rate = 2e-3, .optim_args = settings});
  }
  double step(int number) {
    torch::manual_seed(1000 + number);
    const auto x = torch::randn({64, 8});
    const auto y = x.narrow(1, 0, 4).sin().sum(1, true) + 0.3 * torch::randn({64, 1});
    const auto loss = (net->forward(x) - y).square().mean();
    optimizer->zero_grad();
    loss.backward();
    optimizer->step();
    return loss.item<double>();
  }
  double train(int steps, int counted) {
    double sum = 0;
    for (int i = 0; i < steps; ++i) {
      const double loss = step(i);
      if (i >= steps - counted) sum += loss;
    }
    return sum / counted;
  }

  torch::nn::Sequential net{nullptr};
  std::shared_ptr<Optimizer> optimizer;
};

TEST(AnyPrecisionAdamW, LearnsWithStatesRoundedByChanceAsWithFloat32) {
  const double full = Fit("").train(1000, 100), narrow = Fit(kNarrowByChance).train(1000, 100);
  EXPECT_NEAR(narrow, full, 0.01 * full);
}

TEST(AnyPrecisionAdamW, GoesOnWithTheSameRounding) {
  Fit whole(kNarrowByChance), first(kNarrowByChance), second(kNarrowByChance);
  for (int i = 0; i < 20; ++i) whole.step(i);
  for (int i = 0; i < 10; ++i) first.step(i);
  {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < first.net->parameters().size(); ++i)
      second.net->parameters()[i].copy_(first.net->parameters()[i]);
  }
  second.optimizer->load_state_dict(first.optimizer->state_dict());
  for (int i = 10; i < 20; ++i) second.step(i);
  for (size_t i = 0; i < whole.net->parameters().size(); ++i)
    EXPECT_TRUE(torch::equal(second.net->parameters()[i], whole.net->parameters()[i])) << i;
  const auto state = whole.optimizer->state_dict();
  EXPECT_EQ(state.at("state").at(0).at("exp_avg").as_tensor().scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(state.at("param_groups").items()[0].at("stochastic_rounding").as_bool());
}

}  // namespace
}  // namespace gradus
