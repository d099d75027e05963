#include "models/layers/cached_attention.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace gradus::layers {

using torch::Tensor;

namespace {

/// A tensor (batch, heads, tokens, width) whose last dimension lies together.
struct Numbers {
  explicit Numbers(const Tensor& tensor)
      : data(tensor.const_data_ptr<float>()),
        row(tensor.stride(0)),
        head(tensor.stride(1)),
        token(tensor.stride(2)) {}
  const float* at(int64_t r, int64_t h, int64_t t) const {
    return data + r * row + h * head + t * token;
  }
  const float* data;
  int64_t row, head, token;
};

/// What the loops below read and write.
struct CachedPass {
  Numbers query, keys, values;
  const float* bias;  ///< null without
  int64_t bias_row, bias_head, bias_token;
  const int32_t* rows;
  int64_t rows_stride;
  int64_t heads, shared, tokens, width;  ///< `shared`: heads per head of the keys
  float scale;
  float* output;  ///< (batch, heads, width)
};

/// Sixteen numbers that the compiler adds and multiplies together.
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int64_t kLanes = 16;

__attribute__((always_inline)) inline float dot(const float* a, const float* b, int64_t width) {
  Lanes sums = {};
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    sums += *reinterpret_cast<const Lanes*>(a + i) * *reinterpret_cast<const Lanes*>(b + i);
  float parts[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) parts[lane] = sums[lane];
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) parts[lane] += parts[lane + half];
  float sum = parts[0];
  for (; i < width; ++i) sum += a[i] * b[i];
  return sum;
}

/// to += factor · from
__attribute__((always_inline)) inline void add_scaled(float* to, const float* from, float factor,
                                                      int64_t width) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    *reinterpret_cast<Lanes*>(to + i) += *reinterpret_cast<const Lanes*>(from + i) * factor;
  for (; i < width; ++i) to[i] += from[i] * factor;
}

/// The heads `begin` to `end` - 1, counted over all sequences. `weights` has room for the tokens.
__attribute__((always_inline)) inline void attend_heads(const CachedPass& pass, int64_t begin,
                                                        int64_t end, float* weights) {
  for (auto number = begin; number < end; ++number) {
    const auto row = number / pass.heads, head = number % pass.heads, shared = head / pass.shared;
    const auto* rows = pass.rows + row * pass.rows_stride;
    const auto* query = pass.query.at(row, head, 0);
    const auto* bias =
        pass.bias == nullptr ? nullptr : pass.bias + row * pass.bias_row + head * pass.bias_head;
    auto highest = -std::numeric_limits<float>::infinity();
    for (int64_t t = 0; t < pass.tokens; ++t) {
      auto score = dot(query, pass.keys.at(rows[t], shared, t), pass.width) * pass.scale;
      if (bias != nullptr) score += bias[t * pass.bias_token];
      weights[t] = score;
      highest = std::max(highest, score);
    }
    auto* output = pass.output + number * pass.width;
    std::fill(output, output + pass.width, 0.0F);
    if (highest == -std::numeric_limits<float>::infinity()) continue;  // nothing may be seen
    float sum = 0.0F;
    for (int64_t t = 0; t < pass.tokens; ++t) sum += weights[t] = std::exp(weights[t] - highest);
    for (int64_t t = 0; t < pass.tokens; ++t)
      add_scaled(output, pass.values.at(rows[t], shared, t), weights[t] / sum, pass.width);
  }
}

using AttendHeads = void (*)(const CachedPass&, int64_t, int64_t, float*);

void attend_plainly(const CachedPass& pass, int64_t begin, int64_t end, float* weights) {
  attend_heads(pass, begin, end, weights);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void attend_avx2(const CachedPass& pass, int64_t begin,
                                                     int64_t end, float* weights) {
  attend_heads(pass, begin, end, weights);
}

__attribute__((target("avx512f,fma"))) void attend_avx512(const CachedPass& pass, int64_t begin,
                                                          int64_t end, float* weights) {
  attend_heads(pass, begin, end, weights);
}

AttendHeads fastest_form() {
  if (__builtin_cpu_supports("avx512f")) return attend_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return attend_avx2;
  return attend_plainly;
}
#else
AttendHeads fastest_form() { return attend_plainly; }
#endif

/// What is added to the scores, (batch, heads, 1, tokens); undefined for nothing.
Tensor added_to_scores(const AttentionMask& mask, const AttentionOptions& options,
                       at::IntArrayRef sizes) {
  auto bias = options.position_bias.defined()
                  ? masked_bias(options.position_bias, mask, torch::kFloat)
                  : mask.mask;
  if (!bias.defined()) return {};
  if (bias.scalar_type() == torch::kBool)
    bias =
        at::where(bias, torch::zeros({}), torch::full({}, -std::numeric_limits<float>::infinity()));
  return bias.to(torch::kFloat).expand(sizes);
}

bool lies_together(const Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == torch::kFloat && tensor.stride(-1) == 1;
}

constexpr int64_t kWork = 1 << 15;  // multiplications that are worth a thread

}  // namespace

Tensor gathered_rows(const Tensor& states, const Tensor& rows) {
  const auto tokens = at::arange(rows.size(1), rows.options().dtype(torch::kLong));
  return states.transpose(1, 2).index({rows.to(torch::kLong), tokens}).transpose(1, 2);
}

bool cached_attention_fits(const Tensor& query, const Tensor& key, const Tensor& value,
                           const AttentionOptions& options) {
  return query.size(2) == 1 && !at::GradMode::is_enabled() && options.weights == nullptr &&
         options.dropout == 0.0 && lies_together(query) && lies_together(key) &&
         lies_together(value);
}

Tensor cached_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                        const AttentionMask& mask, const AttentionOptions& options) {
  const auto batch = query.size(0), heads = query.size(1), width = query.size(3),
             tokens = key.size(2);
  const auto bias = added_to_scores(mask, options, {batch, heads, 1, tokens});
  const auto output = at::empty({batch, 1, heads * width}, query.options());
  const auto& rows = options.key_rows;
  const CachedPass pass{
      Numbers(query),
      Numbers(key),
      Numbers(value),
      bias.defined() ? bias.const_data_ptr<float>() : nullptr,
      bias.defined() ? bias.stride(0) : 0,
      bias.defined() ? bias.stride(1) : 0,
      bias.defined() ? bias.stride(3) : 0,
      rows.const_data_ptr<int32_t>(),
      rows.stride(0),
      heads,
      heads / key.size(1),
      tokens,
      width,
      static_cast<float>(options.scale.value_or(1.0 / std::sqrt(static_cast<double>(width)))),
      output.mutable_data_ptr<float>()};
  static const auto attend = fastest_form();
  at::parallel_for(0, batch * heads, std::max<int64_t>(1, kWork / (tokens * width)),
                   [&](int64_t begin, int64_t end) {
                     std::vector<float> weights(static_cast<size_t>(tokens));
                     attend(pass, begin, end, weights.data());
                   });
  return output;
}

}  // namespace gradus::layers
