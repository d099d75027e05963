#include <gradus/kernels/optimizer_kernels.h>

#include <cmath>
#include <limits>

#include "kernel_fixture.h"

namespace gradus::kernels {
namespace {

using torch::Tensor;

class Lists : public KernelTest {
 protected:
  /// Sizes around the kernels' steps, an empty tensor, one of several chunks, and many small ones:
  /// more than one launch takes.
  std::vector<int64_t> sizes() const {
    std::vector<int64_t> all = {1,    7,     8,     9,     0,
                                4096, 32767, 32768, 32769, on_gpu() ? 3000001 : 70001};
    for (int64_t i = 0; i < (on_gpu() ? 1100 : 90); ++i) all.push_back(1 + i % 37);
    return all;
  }
  std::vector<Tensor> tensors(torch::ScalarType type, double scale = 1.0) const {
    std::vector<Tensor> result;
    for (const auto size : sizes())
      result.push_back((torch::randn({size}) * scale).to(type).to(GetParam().device));
    return result;
  }
  /// float32 and the dtype of the test in turn; some begin one element into their memory.
  std::vector<Tensor> mixed(double scale = 1.0) const {
    auto result = tensors(dtype(), scale);
    for (size_t i = 0; i < result.size(); i += 3) result[i] = result[i].to(torch::kFloat);
    for (size_t i = 1; i < result.size(); i += 4)
      result[i] = torch::cat({result[i], result[i].new_ones({1})}).narrow(0, 1, result[i].numel());
    return result;
  }
};

std::vector<Tensor> copies(const std::vector<Tensor>& tensors, torch::ScalarType type) {
  std::vector<Tensor> result;
  for (const auto& tensor : tensors)
    result.push_back(tensor.detach().cpu().to(type, false, /*copy=*/true));
  return result;
}

/// AdamW in float64, as its paper has it.
struct WideAdamW {
  std::vector<Tensor> params, averages, squares;
  void step(const std::vector<Tensor>& grads, double taken, double lr, double factor,
            const AdamWSettings& s) {
    for (size_t i = 0; i < params.size(); ++i) {
      const auto grad = grads[i] * (s.maximize ? -factor : factor);
      params[i].mul_(1 - lr * s.weight_decay);
      averages[i].mul_(s.beta1).add_(grad * (1 - s.beta1));
      squares[i].mul_(s.beta2).add_(grad.square() * (1 - s.beta2));
      const auto denominator = (squares[i] / (1 - std::pow(s.beta2, taken))).sqrt_().add_(s.eps);
      params[i].sub_(averages[i] / denominator * (lr / (1 - std::pow(s.beta1, taken))));
    }
  }
};

TEST_P(Lists, AdamWAgreesWithFloat64) {
  for (const bool maximize : {false, true}) {
    AdamWTensors t;
    t.masters = tensors(torch::kFloat);
    t.exp_avg = tensors(torch::kFloat, 0.0);
    t.exp_avg_sq = tensors(torch::kFloat, 0.0);
    for (const auto& master : t.masters) t.weights.push_back(master.to(dtype(), false, true));
    WideAdamW reference{copies(t.masters, torch::kDouble), copies(t.exp_avg, torch::kDouble),
                        copies(t.exp_avg_sq, torch::kDouble)};
    const AdamWSettings settings{0.9, 0.95, 1e-8, maximize ? 0.0 : 0.1, maximize};
    for (int step = 1; step <= 3; ++step) {
      t.grads = mixed();
      AdamWScalars scalars{number(1e-2), number(step)};
      if (step > 1) scalars.clip_coef = number(0.25);
      if (step > 2) scalars.grad_scale = number(8.0);
      if (step > 1) scalars.found_inf = number(0.0);
      reference.step(copies(t.grads, torch::kDouble), step, 1e-2,
                     (step > 1 ? 0.25 : 1.0) / (step > 2 ? 8.0 : 1.0), settings);
      adamw_(t, scalars, settings);
    }
    for (size_t i = 0; i < t.masters.size(); ++i) {
      const auto what =
          "tensor " + std::to_string(i) + " of " + std::to_string(t.masters[i].numel());
      expect_close(t.masters[i], reference.params[i], 2e-6, what + ", master",
                   1e-6);  // the floor is for small tensors whose terms cancel
      expect_close(t.exp_avg[i], reference.averages[i], 2e-6, what + ", exp_avg", 1e-6);
      expect_close(t.exp_avg_sq[i], reference.squares[i], 2e-6, what + ", exp_avg_sq");
      EXPECT_TRUE(torch::equal(t.weights[i], t.masters[i].to(dtype()))) << what;
    }
  }
}

TEST_P(Lists, AdamWWithoutWeightsAndAfterAnOverflow) {
  AdamWTensors t;
  t.masters = tensors(torch::kFloat);
  t.exp_avg = tensors(torch::kFloat, 0.0);
  t.exp_avg_sq = tensors(torch::kFloat, 0.0);
  t.grads = mixed();
  const auto before = copies(t.masters, torch::kFloat);
  for (const double overflow : {1.0, 3.0}) {
    adamw_(t, {number(1e-2), number(1), std::nullopt, std::nullopt, number(overflow)}, {});
    for (size_t i = 0; i < before.size(); ++i) {
      ASSERT_TRUE(torch::equal(t.masters[i].cpu(), before[i]));
      ASSERT_EQ(t.exp_avg[i].abs().sum().item<double>(), 0.0);
    }
  }
  const auto version = t.masters[0]._version();
  adamw_(t, {number(1e-2), number(1)}, {});
  EXPECT_FALSE(torch::equal(t.masters[9].cpu(), before[9]));
  EXPECT_GT(t.masters[0]._version(), version);
  adamw_({}, {number(1e-2), number(1)}, {});
}

TEST_P(Lists, GradNormAgreesWithFloat64AndRepeats) {
  const auto grads = mixed(0.01);
  double squares = 0;
  for (const auto& grad : copies(grads, torch::kDouble))
    squares += grad.square().sum().item<double>();
  const auto norm = grad_norm(grads);
  EXPECT_EQ(norm.scalar_type(), torch::kFloat);
  EXPECT_EQ(norm.dim(), 0);
  EXPECT_NEAR(norm.item<double>(), std::sqrt(squares), 2e-6 * std::sqrt(squares));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(torch::equal(grad_norm(grads), norm));
  EXPECT_EQ(grad_norm({}).item<double>(), 0.0);
  EXPECT_EQ(grad_norm({torch::empty({0}, grads[0].options())}).item<double>(), 0.0);
  auto broken = grads;
  broken[0] = torch::full_like(broken[0], std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isinf(grad_norm(broken).item<double>()));
}

TEST_P(Lists, ClipCoefficient) {
  EXPECT_EQ(clip_coefficient(number(0.5), 1.0).item<double>(), 1.0);
  EXPECT_NEAR(clip_coefficient(number(4.0), 1.0).item<double>(), 0.25, 1e-6);
  EXPECT_TRUE(std::isnan(clip_coefficient(number(std::nan("")), 1.0).item<double>()));
}

TEST_P(Lists, ScaleAndCopy) {
  auto values = mixed();
  const auto before = copies(values, torch::kDouble);
  scale_(values, number(1.0));
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_TRUE(torch::equal(values[i].cpu().to(torch::kDouble), before[i]));
  scale_(values, number(0.3));
  for (size_t i = 0; i < values.size(); ++i)
    expect_close(values[i], before[i] * 0.3, limit(), "tensor " + std::to_string(i));
  scale_({}, number(0.3));
  const auto sources = tensors(torch::kFloat);
  const auto destinations = tensors(dtype());
  copy_(destinations, sources);
  for (size_t i = 0; i < sources.size(); ++i)
    ASSERT_TRUE(torch::equal(destinations[i], sources[i].to(dtype())));
}

TEST_P(Lists, MoreThanTwoToThe31Elements) {
  if (!on_gpu() || dtype() != torch::kBFloat16) GTEST_SKIP() << "takes 5 GB of a GPU in bfloat16";
  const int64_t count = (int64_t{1} << 31) + 24;
  auto huge = torch::zeros({count}, torch::dtype(torch::kBFloat16).device(torch::kCUDA));
  huge.narrow(0, count - 4, 4).fill_(3.0);
  EXPECT_EQ(grad_norm({huge}).item<double>(), 6.0);
  scale_({huge}, number(2.0));
  EXPECT_EQ(huge[count - 1].item<double>(), 6.0);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Lists,
                         testing::Values(Setting{torch::kCPU, torch::kFloat},
                                         Setting{torch::kCPU, torch::kBFloat16}),
                         setting_name);
INSTANTIATE_TEST_SUITE_P(Gpu, Lists,
                         testing::Values(Setting{torch::kCUDA, torch::kFloat},
                                         Setting{torch::kCUDA, torch::kBFloat16},
                                         Setting{torch::kCUDA, torch::kHalf}),
                         setting_name);

}  // namespace
}  // namespace gradus::kernels
