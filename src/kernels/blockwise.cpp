#include "kernels/blockwise.h"

#include <ATen/Parallel.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/linspace.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace gradus::blockwise {
namespace {

constexpr int64_t kSteps = 65536;

// The tensor as rows of a block each; the last row is filled up with zeros.
torch::Tensor in_blocks(const torch::Tensor& tensor, int64_t block) {
  const auto flat = tensor.reshape({-1});
  const int64_t missing = (block - flat.numel() % block) % block;
  return (missing == 0 ? flat : at::constant_pad_nd(flat, {0, missing})).view({-1, block});
}

using CodeTable = std::array<uint8_t, kSteps>;

// The code of each step from -1 to 1: the first value whose middle to the next is not below it.
CodeTable make_code_table(bool is_signed) {
  const auto held = dynamic_values(is_signed);
  const auto* values = held.const_data_ptr<float>();
  CodeTable table{};
  int code = 0;
  for (int64_t i = 0; i < kSteps; ++i) {
    const float step = -1.0f + (2.0f * float(i)) / float(kSteps - 1);
    while (code < 255 && 0.5f * (values[code] + values[code + 1]) < step) ++code;
    table[size_t(i)] = uint8_t(code);
  }
  return table;
}

const CodeTable& code_table(bool is_signed) {
  static const CodeTable with_sign = make_code_table(true), without = make_code_table(false);
  return is_signed ? with_sign : without;
}

void quantize_block(const float* numbers, int64_t count, const CodeTable& table, uint8_t* codes,
                    float& scale) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(numbers[i]));
  scale = largest;
  if (largest == 0) {
    std::fill(codes, codes + count, uint8_t(0));
    return;
  }
  const float inverse = 1.0f / largest;
  for (int64_t i = 0; i < count; ++i) {
    const float number = std::clamp(numbers[i] * inverse, -1.0f, 1.0f);
    const float place = (number + 1.0f) * 0.5f * float(kSteps - 1) + 0.5f;
    codes[i] = std::isnan(place) ? uint8_t(0) : table[size_t(place)];
  }
}

}  // namespace

torch::Tensor dynamic_values(bool is_signed, int64_t exponents) {
  std::vector<torch::Tensor> parts = {torch::tensor({0.0f, 1.0f})};
  for (int64_t i = 0; i < exponents; ++i) {
    const int64_t items = int64_t(1) << (is_signed ? i : i + 1);
    const auto bounds = at::linspace(0.1, 1, items + 1, at::kFloat);
    const auto means = (bounds.slice(0, 0, items) + bounds.slice(0, 1)) / 2.0;
    const auto scaled = means * std::pow(10.0, double(i - exponents + 1));
    parts.push_back(scaled);
    if (is_signed) parts.push_back(-scaled);
  }
  return std::get<0>(at::cat(parts).sort());
}

torch::Tensor dequantize(const torch::Tensor& codes, const torch::Tensor& scales,
                         const torch::Tensor& values, int64_t block) {
  const auto numbers = values.index_select(0, codes.reshape({-1}).to(at::kInt));
  return in_blocks(numbers, block)
      .mul(scales.unsqueeze(-1))
      .view({-1})
      .slice(0, 0, codes.numel())
      .reshape(codes.sizes());
}

void quantize(const torch::Tensor& numbers, const torch::Tensor& values, const torch::Tensor& codes,
              const torch::Tensor& scales) {
  if (!codes.is_cpu()) return quantize_to_nearest(numbers, values, codes, scales);
  const auto& table = code_table(*values.const_data_ptr<float>() < 0);
  const auto from = numbers.contiguous();
  const auto* source = from.const_data_ptr<float>();
  auto* code = codes.mutable_data_ptr<uint8_t>();
  auto* scale = scales.mutable_data_ptr<float>();
  const int64_t count = from.numel();
  at::parallel_for(0, scales.numel(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      quantize_block(source + b * kBlock, std::min(kBlock, count - b * kBlock), table,
                     code + b * kBlock, scale[b]);
  });
}

void quantize_to_nearest(const torch::Tensor& numbers, const torch::Tensor& values,
                         const torch::Tensor& codes, const torch::Tensor& scales) {
  const auto blocks = in_blocks(numbers, kBlock);
  scales.copy_(blocks.abs().amax(-1));
  const auto normed =
      (blocks / scales.clamp_min(1e-38).unsqueeze(-1)).view({-1}).slice(0, 0, numbers.numel());
  const auto middles = (values.slice(0, 0, -1) + values.slice(0, 1)) / 2;
  auto nearest = at::bucketize(normed, middles);
  // A number below zero does not become zero.
  nearest.sub_(((normed < 0) & (values.index_select(0, nearest) >= 0)).to(at::kLong));
  codes.copy_(nearest.view(codes.sizes()));
}

}  // namespace gradus::blockwise
