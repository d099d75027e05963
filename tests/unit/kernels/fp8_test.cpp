// Products in 8-bit floating point: casts bit for bit, products against the same rounded values in
// float64, and where they do not apply.
#include <ATen/ops/cat.h>
#include <gradus/kernels/fp8.h>
#include <gradus/kernels/fused.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernel_fixture.h"
#include "kernels/operators.h"

namespace gradus::kernels {
namespace {

class Fp8 : public KernelTest {};

/// The values of `x` that e4m3 or e5m2 can hold under one factor, in float64 on the CPU.
Tensor rounded_to_8_bits(const Tensor& x, bool wide_range) {
  const auto whole = x.detach().to(torch::kCPU).to(torch::kFloat);
  const auto limit = wide_range ? 57344.0f : 448.0f;
  const auto amax = whole.abs().max().item<float>(), factor = limit / amax;
  return (whole * factor)
             .to(wide_range ? torch::kFloat8_e5m2 : torch::kFloat8_e4m3fn)
             .to(torch::kDouble) *
         double(amax / limit);
}

Tensor bytes_of(const Tensor& x) { return x.to(torch::kCPU).view(torch::kByte); }

TEST_P(Fp8, CastsHaveTheBitsOfTorchsOwn) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{
           {16, 16}, {48, 272}, {128, 128}, {144, 1040}, {1040, 144}, {256, 4112}})
    for (const bool wide_range : {false, true}) {
      const auto x = leaf(sizes, 3.0).detach();
      const auto [rows, columns, scale] = ops::fp8_cast({x}, 0, wide_range, true, true, {});
      const auto limit = wide_range ? 57344.0f : 448.0f;
      const auto whole = x.to(torch::kCPU).to(torch::kFloat);
      const auto amax = whole.abs().max().item<float>();
      const auto expected =
          (whole * (limit / amax)).to(wide_range ? torch::kFloat8_e5m2 : torch::kFloat8_e4m3fn);
      EXPECT_TRUE(torch::equal(bytes_of(rows), bytes_of(expected))) << x.sizes() << wide_range;
      EXPECT_TRUE(torch::equal(bytes_of(columns), bytes_of(expected.t().contiguous())))
          << x.sizes() << wide_range;
      EXPECT_EQ(scale.item<float>(), amax / limit);
    }
}

TEST_P(Fp8, PartsShareAFactorAndLieSideBySide) {
  const auto wide = leaf({160, 400}).detach();
  const std::vector<Tensor> beside = {wide.narrow(1, 0, 144), wide.narrow(1, 144, 16),
                                      leaf({160, 48}, 5.0).detach()};
  const std::vector<Tensor> below = {leaf({32, 144}).detach(), leaf({272, 144}, 7.0).detach()};
  for (const auto& [parts, dim] : {std::pair(beside, 1), std::pair(below, 0)}) {
    const auto [rows, columns, scale] = ops::fp8_cast(parts, dim, false, true, true, {});
    const auto whole = at::cat(parts, dim);
    const auto expected = rounded_to_8_bits(whole, false);
    const auto value = rows.to(torch::kCPU).to(torch::kDouble) * scale.item<float>();
    EXPECT_TRUE(torch::equal(value, expected));
    EXPECT_TRUE(torch::equal(bytes_of(columns), bytes_of(rows.to(torch::kCPU).t().contiguous())));
    const auto [none, only_columns, same] = ops::fp8_cast(parts, dim, false, false, true, {});
    EXPECT_FALSE(none.defined());
    EXPECT_TRUE(torch::equal(bytes_of(only_columns), bytes_of(columns)));
  }
}

TEST_P(Fp8, ZerosStayZerosAndWhatIsNotFiniteShows) {
  const auto zeros = torch::zeros({16, 32}, leaf({1}).options());
  const auto [rows, columns, scale] = ops::fp8_cast({zeros}, 0, false, true, true, {});
  EXPECT_EQ(rows.to(torch::kFloat).abs().max().item<float>(), 0);
  EXPECT_TRUE(std::isfinite(scale.item<float>()));
  for (const double odd : {double(NAN), double(INFINITY)}) {
    const auto x = leaf({16, 32}).detach();
    x[3][5] = odd;
    const auto [some, none, factor] = ops::fp8_cast({x}, 0, true, true, false, {});
    EXPECT_FALSE((some.to(torch::kFloat) * factor).isfinite().all().item<bool>()) << odd;
  }
}

/// Runs `forward` and its backward with layers of these weights in 8 bits.
Tensor in_8_bits(const std::vector<Tensor>& weights, const Tensor& grad,
                 const std::function<Tensor()>& forward) {
  const Fp8Weights chosen(weights);
  const Fp8Weights::Use use;
  const auto y = forward();
  y.backward(grad);
  return y;
}

TEST_P(Fp8, LinearLayersMultiplyRoundedValues) {
  for (const bool in_out : {false, true}) {
    const auto x = leaf({2, 48, 272}), weight = leaf({in_out ? 272 : 144, in_out ? 144 : 272}, 0.1),
               bias = leaf({144});
    const auto grad = leaf({2, 48, 144}, 1e-4).detach();
    const auto y = in_8_bits({weight}, grad, [&] {
      return in_out ? linear_in_out(x, weight, bias) : linear(x, weight, bias);
    });
    const auto input = rounded_to_8_bits(x, false).view({96, 272}),
               matrix = in_out ? rounded_to_8_bits(weight, false).t().contiguous()
                               : rounded_to_8_bits(weight, false),
               gradient = rounded_to_8_bits(grad, true).view({96, 144});
    expect_close(y.view({96, 144}), input.mm(matrix.t()) + wide(bias), limit(), "output");
    expect_close(x.grad().view({96, 272}), gradient.mm(matrix), limit(), "gradient of the input");
    const auto to_weight = gradient.t().mm(input);
    expect_close(weight.grad(), in_out ? to_weight.t() : to_weight, limit(),
                 "gradient of the weight");
    expect_close(bias.grad(), wide(grad).view({96, 144}).sum(0), limit(), "gradient of the bias");
    // And not too far from what they stand for: e4m3 keeps 3 bits of the mantissa.
    const auto exact = wide(x).view({96, 272}).mm(in_out ? wide(weight) : wide(weight).t());
    expect_close(y.view({96, 144}), exact + wide(bias), 0.05, "output, unrounded");
  }
}

TEST_P(Fp8, ProjectionsAfterANormAreOneProduct) {
  const auto residual = leaf({32, 128}), x = leaf({32, 128}), norm = leaf({128}, 0.3, 1.0);
  const std::vector<Tensor> weights = {leaf({144, 128}, 0.1), leaf({32, 128}, 0.1),
                                       leaf({32, 128}, 0.1)};
  const auto grad = leaf({32, 208}).detach();
  Tensor sum, normed;
  const auto y = in_8_bits(weights, grad, [&] {
    auto result = add_rms_norm_linear(residual, x, norm, 1e-6, weights, {});
    sum = result.sum;
    normed = add_rms_norm(residual.detach(), x.detach(), norm.detach(), 1e-6).normalised;
    return at::cat(result.outputs, 1);
  });
  const auto input = rounded_to_8_bits(normed, false),
             matrix = rounded_to_8_bits(at::cat(weights, 0), false),
             gradient = rounded_to_8_bits(grad, true);
  expect_close(y, input.mm(matrix.t()), limit(), "outputs");
  expect_close(sum, wide(residual) + wide(x), limit(), "sum");
  expect_close(at::cat({weights[0].grad(), weights[1].grad(), weights[2].grad()}, 0),
               gradient.t().mm(input), limit(), "gradients of the weights");
  // The gradient of the norm's input, by the chain of the plain form.
  const auto r = wide(residual), d = wide(x), w = wide(norm);
  const auto total = r + d;
  (total * (total.square().mean(-1, true) + 1e-6).rsqrt() * w).backward(gradient.mm(matrix));
  expect_close(x.grad(), d.grad(), 2 * limit(), "gradient of x");
  expect_close(residual.grad(), r.grad(), 2 * limit(), "gradient of the residual");
  expect_close(norm.grad(), w.grad(), 2 * limit(), "gradient of the norm's weight");
}

TEST_P(Fp8, GatedLayersReadPartsOfOneMatrix) {
  const auto both = leaf({32, 2 * 272}), weight = leaf({64, 272}, 0.1);
  const auto grad = leaf({32, 64}).detach();
  const auto y = in_8_bits({weight}, grad, [&] {
    return swiglu_linear(both.narrow(1, 0, 272), both.narrow(1, 272, 272), weight, {});
  });
  const auto wide_both = wide(both);
  const auto gate = wide_both.narrow(1, 0, 272), up = wide_both.narrow(1, 272, 272);
  const auto product = gate * torch::sigmoid(gate) * up;
  const auto input = rounded_to_8_bits(product.detach().to(dtype()), false),
             matrix = rounded_to_8_bits(weight, false), gradient = rounded_to_8_bits(grad, true);
  expect_close(y, input.mm(matrix.t()), limit(), "output");
  expect_close(weight.grad(), gradient.t().mm(input), limit(), "gradient of the weight");
  product.backward(gradient.mm(matrix));
  expect_close(both.grad(), wide_both.grad(), limit(), "gradients of gate and up");
}

TEST_P(Fp8, OtherLayersAndShapesStayAsTheyAre) {
  const auto x = leaf({32, 64}), odd = leaf({30, 64}), weight = leaf({48, 64});
  const auto usual = linear(x, weight, Tensor()), usual_odd = linear(odd, weight, Tensor());
  const auto is_usual = [&](const Tensor& y) { return torch::equal(y, usual); };
  EXPECT_TRUE(is_usual(linear(x, weight, Tensor())));
  {
    const Fp8Weights chosen({weight});
    EXPECT_TRUE(is_usual(linear(x, weight, Tensor()))) << "outside of a Use";
    const Fp8Weights::Use use;
    EXPECT_FALSE(is_usual(linear(x, weight, Tensor())));
    EXPECT_TRUE(torch::equal(linear(odd, weight, Tensor()), usual_odd)) << "30 rows";
    const auto another = weight.detach().clone();
    EXPECT_TRUE(is_usual(linear(x, another, Tensor()))) << "another weight";
  }
  const Fp8Weights::Use use;
  EXPECT_TRUE(is_usual(linear(x, weight, Tensor()))) << "no longer chosen";
}

TEST_P(Fp8, WithoutAGraphTheValuesAreTheSame) {
  const auto x = leaf({32, 64}), weight = leaf({48, 64});
  const Fp8Weights chosen({weight});
  const Fp8Weights::Use use;
  const auto with = linear(x, weight, Tensor());
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::equal(linear(x, weight, Tensor()), with));
}

TEST_P(Fp8, GradientsHaveTheSameBitsEveryTime) {
  const auto x = leaf({256, 512}), weight = leaf({384, 512}), grad = leaf({256, 384}).detach();
  Tensor first;
  for (int i = 0; i < 3; ++i) {
    weight.mutable_grad() = Tensor();
    in_8_bits({weight}, grad, [&] { return linear(x, weight, Tensor()); });
    if (!first.defined()) first = weight.grad();
    EXPECT_TRUE(torch::equal(first, weight.grad()));
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Fp8, testing::Values(Setting{torch::kCPU, torch::kBFloat16}),
                         setting_name);
INSTANTIATE_TEST_SUITE_P(Gpu, Fp8, testing::Values(Setting{torch::kCUDA, torch::kBFloat16}),
                         setting_name);

}  // namespace
}  // namespace gradus::kernels
