// Attention by kernels that only a GPU has, against the same with a mask.
#include <gradus/models/layers/attention.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

namespace gradus::layers {
namespace {

using torch::Tensor;

class GpuAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here, or built without GRADUS_CUDA";
    torch::manual_seed(5);
  }

  /// (batch, heads, tokens, 64) in bfloat16, with gradients.
  static Tensor states(int64_t batch, int64_t heads, int64_t tokens) {
    return torch::randn({batch, heads, tokens, 64}, torch::kCUDA)
        .to(torch::kBFloat16)
        .requires_grad_();
  }

  /// Output and gradients of both masks differ by rounding.
  static void expect_same(int64_t batch, int64_t tokens, const AttentionMask& one,
                          const AttentionMask& other) {
    const auto q = states(batch, 4, tokens), k = states(batch, 2, tokens),
               v = states(batch, 2, tokens);
    std::vector<std::vector<Tensor>> found;
    for (const auto& mask : {one, other}) {
      const auto output = attention(q, k, v, mask);
      output.to(torch::kFloat).square().sum().backward();
      found.push_back({output.detach(), q.grad().clone(), k.grad().clone(), v.grad().clone()});
      for (const auto& x : {q, k, v}) x.mutable_grad() = Tensor();
    }
    for (size_t i = 0; i < found[0].size(); ++i) {
      const auto a = found[0][i].to(torch::kFloat), b = found[1][i].to(torch::kFloat);
      EXPECT_LT((a - b).norm().item<double>(), 0.01 * b.norm().item<double>()) << i;
    }
  }
};

TEST_F(GpuAttention, AWindowHidesWhatItsMaskHides) {
  const int64_t tokens = 300;
  MaskRequest request{.batch = 2, .queries = tokens, .keys = tokens, .device = torch::kCUDA};
  for (const int64_t window : {2, 7, 64, 299, 300}) {
    request.sliding_window = window;
    request.takes_window = true;
    const auto by_number = make_attention_mask(request);
    ASSERT_EQ(by_number.window, window);
    ASSERT_FALSE(by_number.mask.defined());
    request.takes_window = false;
    expect_same(2, tokens, by_number, make_attention_mask(request));
  }
}

TEST_F(GpuAttention, AWindowEndsWhereAPackedSequenceBegins) {
  const int64_t tokens = 200;
  MaskRequest request{.batch = 1, .queries = tokens, .keys = tokens, .device = torch::kCUDA};
  request.sliding_window = 16;
  const auto starts = torch::tensor({0, 50, 53, 200}, torch::kInt);
  request.sequence_ids =
      packed_sequence_ids({{"cu_seq_lens_q", starts}}, 1, tokens).to(torch::kCUDA);
  const auto masked = make_attention_mask(request);
  request.starts = starts.to(torch::kCUDA);
  request.takes_window = true;
  const auto by_number = make_attention_mask(request);
  ASSERT_TRUE(by_number.starts.defined());
  expect_same(1, tokens, by_number, masked);
}

TEST_F(GpuAttention, AQueryThatSeesNothingHasNumbers) {
  const torch::NoGradGuard no_grad;
  const auto q = states(2, 4, 1), k = states(2, 2, 9), v = states(2, 2, 9);
  auto mask = torch::ones({2, 1, 1, 9}, torch::dtype(torch::kBool).device(torch::kCUDA));
  mask[1].fill_(false);
  const auto output = attention(q, k, v, {.mask = mask}).to(torch::kFloat);
  EXPECT_TRUE(output.isfinite().all().item<bool>());
  const auto mean = v[1].to(torch::kFloat).mean(1).repeat_interleave(2, 0).flatten();
  EXPECT_LT((output[1][0] - mean).abs().max().item<double>(), 0.02);
}

TEST_F(GpuAttention, ALearnedBiasHasItsGradient) {
  const int64_t batch = 3, heads = 4, tokens = 512;
  const auto q = states(batch, heads, tokens), k = states(batch, heads, tokens),
             v = states(batch, heads, tokens);
  // as T5 makes it: heads last in memory
  const auto table = torch::randn({tokens, tokens, heads}, torch::kCUDA).requires_grad_();
  const auto bias = [&](torch::Dtype type) { return table.permute({2, 0, 1})[None].to(type); };
  const auto gradients = [&](const Tensor& output) {
    output.to(torch::kFloat).square().sum().backward();
    std::vector<Tensor> found = {output.detach()};
    for (const auto& x : {q, k, v, table}) {
      found.push_back(x.grad().clone());
      x.mutable_grad() = Tensor();
    }
    return found;
  };
  AttentionOptions options;
  options.scale = 1.0 / 8;
  options.position_bias = bias(torch::kBFloat16);
  const auto found = gradients(attention(q, k, v, {}, options));
  const auto wide = [](const Tensor& x) { return x.to(torch::kFloat); };
  const auto weights =
      (wide(q).matmul(wide(k).transpose(2, 3)) / 8 + bias(torch::kFloat)).softmax(-1);
  const auto expected =
      gradients(weights.matmul(wide(v)).transpose(1, 2).reshape({batch, tokens, -1}));
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_LT((wide(found[i]) - wide(expected[i])).norm().item<double>(),
              0.02 * wide(expected[i]).norm().item<double>())
        << i;
}

}  // namespace
}  // namespace gradus::layers
