#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gradus/device/cpu_matmul.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <functional>
#include <vector>

#include "../error_of.h"

namespace gradus::device {
namespace {

using torch::Tensor;

/// Large enough for oneDNN: 2^21 multiplications.
constexpr int64_t kRows = 96, kInner = 300, kColumns = 128;
/// What rounding may add up to in a sum of so many terms, as a share of their magnitudes.
constexpr double kRounding = kInner / double(1 << 24);

class CpuMatmul : public testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(1);
    use_cpu_matmul("onednn");
  }
  void TearDown() override { use_cpu_matmul("torch"); }
};

// The largest difference from the same in float64, as a share of the largest sum of magnitudes.
template <typename Product>
double error_of_product(const Product& product, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> exact, magnitudes;
  for (const auto& input : inputs) {
    exact.push_back(input.to(torch::kDouble));
    magnitudes.push_back(input.abs());
  }
  const Tensor wanted = product(exact), found = product(inputs);
  EXPECT_EQ(found.sizes(), wanted.sizes());
  EXPECT_EQ(found.scalar_type(), torch::kFloat);
  return ((found - wanted).abs().max() / product(magnitudes).max()).template item<double>();
}

TEST_F(CpuMatmul, ProductsOfAllLayoutsAreRight) {
  const auto wide = at::randn({kRows, 2 * kInner});
  const std::vector<Tensor> lefts = {at::randn({kRows, kInner}), at::randn({kInner, kRows}).t(),
                                     wide.slice(1, 0, 2 * kInner, 2), wide.slice(1, 0, kInner),
                                     at::randn({kRows, 1}).expand({kRows, kInner})};
  const std::vector<Tensor> rights = {at::randn({kInner, kColumns}),
                                      at::randn({kColumns, kInner}).t(),
                                      at::randn({1, kColumns}).expand({kInner, kColumns})};
  for (const auto& a : lefts)
    for (const auto& b : rights) {
      EXPECT_LT(error_of_product([](const auto& in) { return at::mm(in[0], in[1]); }, {a, b}),
                kRounding);
      for (const auto& added : {at::randn({kColumns}), at::randn({kRows, kColumns}),
                                at::randn({kRows, 1}), at::randn({})})
        EXPECT_LT(
            error_of_product([](const auto& in) { return at::addmm(in[0], in[1], in[2], 0.5, 2); },
                             {added, a, b}),
            kRounding);
    }
  const auto batch = at::randn({6, kRows, kInner}), other = at::randn({6, kColumns, kInner});
  EXPECT_LT(error_of_product([](const auto& in) { return at::bmm(in[0], in[1].transpose(1, 2)); },
                             {batch, other}),
            kRounding);
}

TEST_F(CpuMatmul, ProductsAreWrittenWhereTheyBelong) {
  const auto a = at::randn({kRows, kInner}), b = at::randn({kColumns, kInner}).t();
  const auto added = at::randn({kRows, kColumns});
  using Inputs = std::vector<Tensor>;
  const auto written = [](const Inputs& in) {
    auto out = at::empty({kRows, kColumns}, in[0].options());
    return at::mm_out(out, in[0], in[1]);
  };
  const auto resized = [](const Inputs& in) {
    auto out = at::empty({0}, in[0].options());
    return at::mm_out(out, in[0], in[1]);
  };
  const auto turned = [](const Inputs& in) {
    auto out = at::empty({kColumns, kRows}, in[0].options()).t();
    return at::addmm_out(out, in[2], in[0], in[1]);
  };
  const auto sum = [](const Inputs& in) {
    auto out = at::empty({kRows, kColumns}, in[0].options());
    return at::addmm_out(out, in[2][0], in[0], in[1], 0.5, 2);
  };
  const auto onto_itself = [](const Inputs& in) {
    auto out = in[2].clone();
    return at::addmm_out(out, out, in[0], in[1], 0.5, 2);
  };
  const auto in_place = [](const Inputs& in) { return in[2].clone().addmm_(in[0], in[1], 0.5, 2); };
  for (const auto& product : std::vector<std::function<Tensor(const Inputs&)>>{
           written, resized, turned, sum, onto_itself, in_place})
    EXPECT_LT(error_of_product(product, {a, b, added}), kRounding);
}

TEST_F(CpuMatmul, LayersHaveTheirGradients) {
  const auto x = at::randn({4, kRows, kInner}).requires_grad_();
  const auto weight = at::randn({kColumns, kInner}).requires_grad_();
  const auto bias = at::randn({kColumns}).requires_grad_();
  const auto gradients = [&] {
    for (const auto& tensor : {x, weight, bias}) tensor.mutable_grad().reset();
    at::linear(x, weight, bias).square().sum().backward();
    return std::vector<Tensor>{x.grad(), weight.grad(), bias.grad()};
  };
  const auto found = gradients();
  use_cpu_matmul("torch");
  const auto wanted = gradients();
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_LT(((found[i] - wanted[i]).abs().max() / wanted[i].abs().max()).item<double>(), 1e-5);
  EXPECT_FALSE(at::equal(found[1], wanted[1])) << "oneDNN was not asked";
}

TEST_F(CpuMatmul, SmallProductsAndOtherTypesAreTorchs) {
  const auto small = at::randn({16, 16});
  const auto twice = at::randn({kRows, kInner}, torch::kDouble);
  const auto by_onednn = std::vector{at::mm(small, small), at::mm(twice, twice.t())};
  use_cpu_matmul("torch");
  EXPECT_TRUE(at::equal(by_onednn[0], at::mm(small, small)));
  EXPECT_TRUE(at::equal(by_onednn[1], at::mm(twice, twice.t())));
}

TEST_F(CpuMatmul, BitsDoNotDependOnWhereMatricesLie) {
  const auto a = at::randn({kRows, kInner}), b = at::randn({kInner, kColumns});
  const auto product = at::mm(a, b);
  for (const int64_t shift : {1, 3, 8}) {
    const auto elsewhere = at::empty({shift + a.numel()}).slice(0, shift).view(a.sizes());
    elsewhere.copy_(a);
    EXPECT_TRUE(at::equal(at::mm(elsewhere, b), product)) << shift;
  }
}

TEST_F(CpuMatmul, WhatIsAddedMayBeLeftOut) {
  const auto a = at::randn({kRows, kInner}), b = at::randn({kInner, kColumns});
  const auto nothing = at::full({kColumns}, NAN);
  EXPECT_TRUE(at::addmm(nothing, a, b, 0, 1).isfinite().all().item<bool>());
}

TEST_F(CpuMatmul, WrongShapesAreTorchsErrors) {
  const auto what = [](const Tensor& a, const Tensor& b) {
    try {
      at::mm(a, b);
    } catch (const c10::Error& error) {
      return error.msg();
    }
    return std::string("no error");
  };
  const auto a = at::randn({2000, 1000}), b = at::randn({999, 500});
  const auto by_onednn = what(a, b);
  use_cpu_matmul("torch");
  EXPECT_EQ(by_onednn, what(a, b));
  EXPECT_NE(by_onednn, "no error");
}

TEST_F(CpuMatmul, NamesAreChecked) {
  EXPECT_EQ(cpu_matmul(), "onednn");
  EXPECT_EQ(error_of([] { use_cpu_matmul("mkl"); }),
            "gradus: cpu_matmul: must be torch or onednn, received \"mkl\" [G-CONF-3]\n"
            "  Leave it out for torch, whose numbers are Python's.");
  EXPECT_EQ(cpu_matmul(), "onednn");
  use_cpu_matmul("torch");
  EXPECT_EQ(cpu_matmul(), "torch");
}

TEST_F(CpuMatmul, BothAreMeasured) {
  const auto speed = measure_cpu_matmul();
  EXPECT_GT(speed.torch, 0);
  EXPECT_GT(speed.onednn, 0);
}

}  // namespace
}  // namespace gradus::device
