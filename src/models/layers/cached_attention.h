#pragma once

#include <gradus/models/layers/attention.h>

namespace gradus::layers {

/// `states` (rows, heads, tokens, width) as (batch, heads, tokens, width): the tokens that `rows`
/// (batch, tokens) names.
torch::Tensor gathered_rows(const torch::Tensor& states, const torch::Tensor& rows);

/// Whether `cached_attention` can be called: one query per sequence, float32 on the CPU, no
/// gradients, nobody who wants the weights.
bool cached_attention_fits(const torch::Tensor& query, const torch::Tensor& key,
                           const torch::Tensor& value, const AttentionOptions& options);

/// `attention` of one query per sequence that reads keys and values where they are, by
/// `options.key_rows`.
torch::Tensor cached_attention(const torch::Tensor& query, const torch::Tensor& key,
                               const torch::Tensor& value, const AttentionMask& mask,
                               const AttentionOptions& options);

}  // namespace gradus::layers
