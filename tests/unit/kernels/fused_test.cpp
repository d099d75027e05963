#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <gradus/core/error.h>
#include <gradus/kernels/fused.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernel_fixture.h"

namespace gradus::kernels {
namespace {

using torch::Tensor;

Tensor wide_rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return x * (x.square().mean(-1, true) + eps).rsqrt() * weight;
}

/// (…, r/2) angles and the rotation in float64, as transformers writes it.
Tensor wide_rotation(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const auto half = cos.size(-1), width = x.size(-1);
  const auto a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return torch::cat(
      {a * cos - b * sin, b * cos + a * sin, x.narrow(-1, 2 * half, width - 2 * half)}, -1);
}

class Norm : public KernelTest {};
class Gate : public KernelTest {};
class Turn : public KernelTest {};
class Loss : public KernelTest {};

TEST_P(Norm, AddLayerNormAgreesWithFloat64) {
  for (const int64_t width : {8, 120, 256, 264, 768, 1024, 1032, 2048, 3000, 4104, 6152, 8192}) {
    for (const int64_t rows :
         {1, 3,
          !on_gpu()       ? 65
          : width <= 1024 ? 2500
                          : 700}) {  // on a GPU more than its blocks take at once
      const auto residual = leaf({rows, width}), x = leaf({rows, width}, 2.0, 0.5),
                 weight = leaf({width}, 0.3, 1.0), bias = leaf({width});
      const auto r = wide(residual), d = wide(x), w = wide(weight), b = wide(bias);
      const auto to_sum = leaf({rows, width}).detach(), to_out = leaf({rows, width}).detach();
      const auto [sum, out] = add_layer_norm(residual, x, weight, bias, 1e-5);
      torch::autograd::backward({sum, out}, {to_sum, to_out});
      // the norm is of the rounded sum, as the model computes it
      const auto total =
          r + d + (sum.detach().to(torch::kCPU).to(torch::kDouble) - (r + d).detach());
      const auto expected = at::layer_norm(total, {width}, w, b, 1e-5);
      torch::autograd::backward({total, expected}, {wide(to_sum), wide(to_out)});
      const auto what = "width " + std::to_string(width) + ", rows " + std::to_string(rows);
      expect_close(sum, r + d, limit(), what + ", sum");
      expect_close(out, expected, limit(), what + ", out");
      expect_close(residual.grad(), r.grad(), limit(), what + ", residual");
      expect_close(x.grad(), d.grad(), limit(), what + ", x");
      expect_close(weight.grad(), w.grad(), limit(), what + ", weight");
      expect_close(bias.grad(), b.grad(), limit(), what + ", bias");
    }
  }
}

TEST_P(Norm, AddRmsNormAgreesWithFloat64) {
  for (const int64_t width : {16, 64, 128, 512, 896, 1024, 2048, 4096, 5120, 8192}) {
    const int64_t rows = !on_gpu() ? 33 : width <= 1024 ? 2501 : 701;
    const auto residual = leaf({rows, width}), x = leaf({rows, width}),
               weight = leaf({width}, 0.3, 1.0);
    const auto r = wide(residual), d = wide(x), w = wide(weight);
    const auto to_sum = leaf({rows, width}).detach(), to_out = leaf({rows, width}).detach();
    const auto [sum, out] = add_rms_norm(residual, x, weight, 1e-6);
    torch::autograd::backward({sum, out}, {to_sum, to_out});
    const auto total = r + d + (sum.detach().to(torch::kCPU).to(torch::kDouble) - (r + d).detach());
    const auto expected = wide_rms_norm(total, w, 1e-6);
    torch::autograd::backward({total, expected}, {wide(to_sum), wide(to_out)});
    const auto what = "width " + std::to_string(width);
    expect_close(out, expected, limit(), what + ", out");
    expect_close(residual.grad(), r.grad(), limit(), what + ", residual");
    expect_close(x.grad(), d.grad(), limit(), what + ", x");
    expect_close(weight.grad(), w.grad(), limit(), what + ", weight");
  }
}

TEST_P(Norm, OneOutputMayBeLeftUnused) {
  const auto residual = leaf({5, 64}), x = leaf({5, 64}), weight = leaf({64}, 0.3, 1.0),
             bias = leaf({64});
  add_layer_norm(residual, x, weight, bias, 1e-5).sum.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::ones_like(x)));
  EXPECT_FALSE(weight.grad().defined());
  const auto r = wide(residual), w = wide(weight);
  residual.mutable_grad() = Tensor();
  add_rms_norm(residual, x, weight, 1e-6).normalised.sum().backward();
  wide_rms_norm(r + wide(x), w, 1e-6).sum().backward();
  expect_close(residual.grad(), r.grad(), 3 * limit(), "residual");
}

TEST_P(Norm, WithoutResidualAndWithFourDimensions) {
  const auto x = leaf({3, 7, 4, 128}), weight = leaf({128}, 0.3, 1.0), bias = leaf({128});
  const auto d = wide(x), w = wide(weight), b = wide(bias), grad = leaf({3, 7, 4, 128}).detach();
  rms_norm(x, weight, 1e-6).backward(grad);
  wide_rms_norm(d, w, 1e-6).backward(wide(grad));
  expect_close(x.grad(), d.grad(), limit(), "rms x");
  expect_close(weight.grad(), w.grad(), limit(), "rms weight");
  x.mutable_grad() = d.mutable_grad() = Tensor();
  layer_norm(x, weight, bias, 1e-5).backward(grad);
  at::layer_norm(d, {128}, w, b, 1e-5).backward(wide(grad));
  expect_close(x.grad(), d.grad(), limit(), "x");
  expect_close(bias.grad(), b.grad(), limit(), "bias");
}

TEST_P(Norm, WidthsAndLayoutsWithoutKernelTakeThePlainForm) {
  for (const int64_t width : {7, 100, 8200}) {
    const auto residual = leaf({6, width}), x = leaf({width, 6}).t(), weight = leaf({width}),
               bias = leaf({width});
    const auto [sum, out] = add_layer_norm(residual, x, weight, bias, 1e-5);
    expect_close(out, at::layer_norm(wide(sum), {width}, wide(weight), wide(bias), 1e-5), limit(),
                 "width " + std::to_string(width));
    const auto normed = add_rms_norm(residual, x, weight, 1e-6).normalised;
    expect_close(normed, wide_rms_norm(wide(sum), wide(weight), 1e-6), limit(),
                 "rms, width " + std::to_string(width));
  }
}

TEST_P(Norm, GradientsHaveTheSameBitsEveryTime) {
  const auto x = leaf({3001, 768}), weight = leaf({768}), bias = leaf({768});
  const auto grad = leaf({3001, 768}).detach();
  Tensor first;
  for (int i = 0; i < 3; ++i) {
    weight.mutable_grad() = Tensor();
    layer_norm(x, weight, bias, 1e-5).backward(grad);
    if (!first.defined()) first = weight.grad();
    EXPECT_TRUE(torch::equal(first, weight.grad()));
  }
}

TEST_P(Norm, SecondDerivativesGoThroughThePlainForm) {
  if (dtype() != torch::kFloat) GTEST_SKIP() << "float32 is enough here";
  const auto x = leaf({4, 16}), weight = leaf({16}, 0.3, 1.0), bias = leaf({16});
  const auto d = wide(x), w = wide(weight), b = wide(bias);
  const auto penalty = [](const Tensor& out, const Tensor& in) {
    return torch::autograd::grad({out.pow(3).sum()}, {in}, {}, true, true)[0].square().sum();
  };
  penalty(layer_norm(x, weight, bias, 1e-5), x).backward();
  penalty(at::layer_norm(d, {16}, w, b, 1e-5), d).backward();
  expect_close(x.grad(), d.grad(), 1e-4, "layer norm");
  x.mutable_grad() = d.mutable_grad() = Tensor();
  penalty(rms_norm(x, weight, 1e-6), x).backward();
  penalty(wide_rms_norm(d, w, 1e-6), d).backward();
  expect_close(x.grad(), d.grad(), 1e-4, "rms norm");
}

TEST_P(Gate, SwigluAgreesWithFloat64) {
  for (const auto& sizes :
       std::vector<std::vector<int64_t>>{{8}, {3, 5, 16}, {7, 3}, {on_gpu() ? 4099 : 17, 2048}}) {
    const auto gate = leaf(sizes, 3.0), up = leaf(sizes), grad = leaf(sizes).detach();
    const auto g = wide(gate), u = wide(up);
    const auto out = swiglu(gate, up);
    out.backward(grad);
    const auto expected = at::silu(g) * u;
    expected.backward(wide(grad));
    expect_close(out, expected, limit(), "out");
    expect_close(gate.grad(), g.grad(), limit(), "gate");
    expect_close(up.grad(), u.grad(), limit(), "up");
  }
}

TEST_P(Gate, SwigluLinearAgreesWithFloat64) {
  for (const bool biased : {false, true}) {
    const auto gate = leaf({2, 37, 96}), up = leaf({2, 37, 96}), weight = leaf({40, 96}, 0.1),
               bias = biased ? leaf({40}) : Tensor();
    const auto g = wide(gate), u = wide(up), w = wide(weight), b = biased ? wide(bias) : Tensor(),
               grad = leaf({2, 37, 40}).detach();
    const auto out = swiglu_linear(gate, up, weight, bias);
    out.backward(grad);
    const auto expected = at::linear(at::silu(g) * u, w, b);
    expected.backward(wide(grad));
    expect_close(out, expected, limit(), "out");
    expect_close(gate.grad(), g.grad(), limit(), "gate");
    expect_close(up.grad(), u.grad(), limit(), "up");
    expect_close(weight.grad(), w.grad(), limit(), "weight");
    if (biased) expect_close(bias.grad(), b.grad(), limit(), "bias");
  }
  const auto gate = leaf({4, 8}), up = leaf({4, 8}),
             weight = leaf({8, 8}).detach();  // a frozen weight
  swiglu_linear(gate, up, weight, {}).sum().backward();
  EXPECT_TRUE(gate.grad().defined());
}

TEST_P(Gate, LinearAgreesWithFloat64) {
  for (const auto& [rows, out_width] : {std::pair<int64_t, int64_t>{1, 8},
                                        {37, 40},
                                        {700, 2304},
                                        {on_gpu() ? 5000 : 64, 24},
                                        {9, 5}}) {
    for (const bool turned : {false, true}) {
      const auto x = leaf({rows, 2, 48}), bias = leaf({out_width}),
                 grad = leaf({rows, 2, out_width}).detach();
      const auto weight = turned ? leaf({out_width, 48}, 0.1) : leaf({48, out_width}, 0.1);
      const auto d = wide(x), w = wide(weight), b = wide(bias);
      const auto out = turned ? linear(x, weight, bias) : linear_in_out(x, weight, bias);
      out.backward(grad);
      const auto expected = at::linear(d, turned ? w : w.t(), b);
      expected.backward(wide(grad));
      const auto what = std::to_string(rows) + " x " + std::to_string(out_width);
      expect_close(out, expected, limit(), what + ", out");
      expect_close(x.grad(), d.grad(), limit(), what + ", x");
      expect_close(weight.grad(), w.grad(), limit(), what + ", weight");
      expect_close(bias.grad(), b.grad(), limit(), what + ", bias");
      EXPECT_TRUE(weight.grad().is_contiguous());
    }
  }
}

TEST_P(Norm, RmsNormWithProjectionsAgreesWithFloat64) {
  for (const bool biased : {false, true}) {
    for (const bool summed : {false, true}) {
      const auto residual = leaf({3, 7, 64}), x = leaf({3, 7, 64}), norm = leaf({64}, 0.3, 1.0),
                 first = leaf({40, 64}, 0.1), second = leaf({16, 64}, 0.1);
      const std::vector<Tensor> biases =
          biased ? std::vector{leaf({40}), leaf({16})} : std::vector<Tensor>{};
      const auto r = wide(residual), d = wide(x), n = wide(norm), a = wide(first), b = wide(second);
      const auto to_sum = leaf({3, 7, 64}).detach(), to_first = leaf({3, 7, 40}).detach(),
                 to_second = leaf({3, 7, 16}).detach();
      const auto result =
          add_rms_norm_linear(summed ? residual : Tensor(), x, norm, 1e-6, {first, second}, biases);
      auto total = summed ? r + d : d * 1;
      total = total + (result.sum.detach().to(torch::kCPU).to(torch::kDouble) - total.detach());
      const auto normed = wide_rms_norm(total, n, 1e-6);
      std::vector<Tensor> wide_biases;
      for (const auto& bias : biases) wide_biases.push_back(wide(bias));
      const std::vector<Tensor> expected = {
          at::linear(normed, a, biased ? std::optional(wide_biases[0]) : std::nullopt),
          at::linear(normed, b, biased ? std::optional(wide_biases[1]) : std::nullopt)};
      torch::autograd::backward({result.sum, result.outputs[0], result.outputs[1]},
                                {to_sum, to_first, to_second});
      torch::autograd::backward({total, expected[0], expected[1]},
                                {wide(to_sum), wide(to_first), wide(to_second)});
      expect_close(result.outputs[0], expected[0], limit(), "first");
      expect_close(result.outputs[1], expected[1], limit(), "second");
      expect_close(x.grad(), d.grad(), limit(), "x");
      if (summed) expect_close(residual.grad(), r.grad(), limit(), "residual");
      expect_close(norm.grad(), n.grad(), limit(), "norm");
      expect_close(first.grad(), a.grad(), limit(), "weight");
      expect_close(second.grad(), b.grad(), limit(), "second weight");
      if (biased) expect_close(biases[1].grad(), wide_biases[1].grad(), limit(), "bias");
    }
  }
  const auto x = leaf({5, 16}), norm = leaf({16}), frozen = leaf({8, 16}).detach(),
             weight = leaf({8, 16});
  const auto result = add_rms_norm_linear({}, x, norm, 1e-6, {frozen, weight}, {});
  result.outputs[1].sum().backward();  // the first is not used
  EXPECT_TRUE(x.grad().defined() && weight.grad().defined());
}

TEST_P(Turn, HeadsAreViewsAndTheirGradientsArePacked) {
  for (const int64_t width : {64, 5}) {
    const auto packed = leaf({2, 9, 3 * 4 * width});
    const auto [query, key, value] = split_heads(packed, 4);
    EXPECT_EQ(query.data_ptr(), packed.data_ptr());
    EXPECT_TRUE(torch::equal(value, packed.view({2, 9, 3, 4, width}).select(2, 2)));
    const auto a = leaf({2, 4, 9, width}).detach().transpose(1, 2),
               b = leaf({2, 9, 4, width}).detach();
    torch::autograd::backward({query, key, value}, {a, b, b * 2});
    EXPECT_TRUE(
        torch::equal(packed.grad().view({2, 9, 3, 4, width}), torch::stack({a, b, b * 2}, 2)));
  }
}

TEST_P(Turn, RotatesViewsOfAPackedProjection) {
  for (const int64_t rotated : {64, 32, 6}) {
    for (const int64_t angle_rows : {1, 3}) {
      const auto packed = leaf({3, 11, 6, 64});  // four heads of queries, two of keys
      const auto phases = torch::rand({angle_rows, 11, 1, rotated / 2}, torch::kDouble) * 6;
      const auto p = wide(packed);
      const auto to_query = leaf({3, 4, 11, 64}).detach().transpose(1, 2),
                 to_key = leaf({3, 11, 2, 64}).detach();
      const auto angle = [&](const Tensor& x) { return x.to(torch::kFloat).to(GetParam().device); };
      const auto [query, key] = rotary(packed.narrow(2, 0, 4), packed.narrow(2, 4, 2),
                                       angle(phases.cos()), angle(phases.sin()));
      torch::autograd::backward({query, key}, {to_query, to_key});
      const auto both = wide_rotation(p, phases.cos(), phases.sin());
      both.backward(torch::cat({wide(to_query).detach(), wide(to_key).detach()}, 2));
      expect_close(query, both.narrow(2, 0, 4), limit(), "query");
      expect_close(key, both.narrow(2, 4, 2), limit(), "key");
      expect_close(packed.grad(), p.grad(), limit(), "gradient");
    }
  }
}

Tensor wide_loss(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                 const Tensor& labels, double scale) {
  const auto logits =
      at::linear(hidden, weight, bias.defined() ? std::optional(bias) : std::nullopt);
  return at::cross_entropy_loss(logits, labels.cpu(), {}, at::Reduction::Sum, -100) * scale;
}

TEST_P(Loss, LinearCrossEntropyAgreesWithFloat64) {
  struct Case {
    int64_t rows, width, classes;
    bool biased;
  };
  std::vector<Case> cases = {
      {1, 64, 64, false}, {300, 32, 1003, false}, {129, 64, 5, true}, {40, 16, 130, true}};
  if (on_gpu()) cases.push_back({9001, 64, 50257, false});
  for (const auto& [rows, width, classes, biased] : cases) {
    const auto hidden = leaf({rows, width}), weight = leaf({classes, width}, 0.3),
               bias = biased ? leaf({classes}) : Tensor();
    auto labels = torch::randint(0, classes, {rows});
    if (rows > 1) labels.masked_fill_(torch::rand({rows}) < 0.3, -100);
    const auto h = wide(hidden), w = wide(weight), b = biased ? wide(bias) : Tensor();
    const auto loss =
        linear_cross_entropy(hidden, weight, bias, labels.to(GetParam().device), number(1.0 / 64));
    (loss * 3).backward();
    const auto expected = wide_loss(h, w, b, labels, 1.0 / 64);
    (expected * 3).backward();
    const auto what = std::to_string(rows) + " rows, " + std::to_string(classes) + " classes";
    EXPECT_EQ(loss.scalar_type(), torch::kFloat);
    expect_close(loss, expected, 1e-3, what + ", loss");
    expect_close(hidden.grad(), h.grad(), 1.5 * limit(), what + ", hidden");
    expect_close(weight.grad(), w.grad(), 1.5 * limit(), what + ", weight");
    if (biased) expect_close(bias.grad(), b.grad(), 1.5 * limit(), what + ", bias");
  }
}

TEST_P(Loss, RunsWithoutGradientsAndOnlyOnceWithThem) {
  const auto hidden = leaf({20, 16}), weight = leaf({100, 16});
  const auto labels = torch::randint(0, 100, {20}).to(GetParam().device);
  Tensor plain;
  {
    torch::NoGradGuard no_grad;
    plain = linear_cross_entropy(hidden, weight, {}, labels, number(0.05));
  }
  const auto loss = linear_cross_entropy(hidden, weight, {}, labels, number(0.05));
  EXPECT_TRUE(torch::equal(plain, loss.detach()));
  EXPECT_FALSE(plain.requires_grad());
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(loss.backward(), Error);
}

TEST_P(Loss, ALabelOutsideTheClassesGivesNaN) {
  const auto hidden = leaf({4, 16}), weight = leaf({10, 16});
  for (const int64_t label : {10, 12, 1000000, -1}) {
    const auto labels = torch::tensor({1, 2, int(label), 3}, torch::kLong).to(GetParam().device);
    EXPECT_TRUE(
        std::isnan(linear_cross_entropy(hidden, weight, {}, labels, number(1.0)).item<double>()))
        << label;
  }
  const auto none = torch::full({4}, -100, torch::kLong).to(GetParam().device);
  const auto loss = linear_cross_entropy(hidden, weight, {}, none, number(1.0));
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0.0);
  EXPECT_EQ(weight.grad().abs().max().item<double>(), 0.0);
}

TEST(PlainForm, IsBitForBitWhatAtenGivesOnTheCpu) {
  const auto residual = torch::randn({9, 24}), x = torch::randn({9, 24}),
             weight = torch::randn({24}), bias = torch::randn({24});
  const auto [sum, out] = add_layer_norm(residual, x, weight, bias, 1e-5);
  EXPECT_TRUE(torch::equal(sum, residual + x));
  EXPECT_TRUE(torch::equal(out, at::layer_norm(residual + x, {24}, weight, bias, 1e-5)));
  EXPECT_TRUE(torch::equal(swiglu(x, residual), at::silu(x).mul_(residual)));
  EXPECT_TRUE(torch::equal(swiglu_linear(x, residual, torch::ones({5, 24}), {}),
                           at::linear(at::silu(x).mul_(residual), torch::ones({5, 24}))));
}

const auto kOnCpu = testing::Values(Setting{torch::kCPU, torch::kFloat});
const auto kOnGpu =
    testing::Values(Setting{torch::kCUDA, torch::kFloat}, Setting{torch::kCUDA, torch::kBFloat16},
                    Setting{torch::kCUDA, torch::kHalf});
INSTANTIATE_TEST_SUITE_P(Cpu, Norm, kOnCpu, setting_name);
INSTANTIATE_TEST_SUITE_P(Gpu, Norm, kOnGpu, setting_name);
INSTANTIATE_TEST_SUITE_P(Cpu, Gate, kOnCpu, setting_name);
INSTANTIATE_TEST_SUITE_P(Gpu, Gate, kOnGpu, setting_name);
INSTANTIATE_TEST_SUITE_P(Cpu, Turn, kOnCpu, setting_name);
INSTANTIATE_TEST_SUITE_P(Gpu, Turn, kOnGpu, setting_name);
INSTANTIATE_TEST_SUITE_P(Cpu, Loss,
                         testing::Values(Setting{torch::kCPU, torch::kFloat},
                                         Setting{torch::kCPU, torch::kBFloat16}),
                         setting_name);
INSTANTIATE_TEST_SUITE_P(Gpu, Loss,
                         testing::Values(Setting{torch::kCUDA, torch::kFloat},
                                         Setting{torch::kCUDA, torch::kBFloat16}),
                         setting_name);

}  // namespace
}  // namespace gradus::kernels
