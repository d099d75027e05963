#pragma once

#include <torch/types.h>

#include <cstdint>

/// BigBird's attention: every block of tokens sees its neighbours, the first and the last block and
/// some random ones; the first and the last block see everything.
namespace gradus::bigbird {

/// The sizes of one layer's attention.
struct BlockShape {
  int64_t tokens = 0;     ///< In a row; a multiple of `block_size`.
  int64_t positions = 0;  ///< `max_position_embeddings`
  int64_t block_size = 0;
  int64_t heads = 0;
  int64_t random_blocks = 0;

  int64_t blocks() const { return tokens / block_size; }
};

/// The least number of tokens for which attention is sparse is one more than this.
int64_t longest_full_attention(int64_t block_size, int64_t random_blocks);

/// (heads, blocks - 2, random blocks): which blocks each block but the first and the last sees at
/// random in training. As in transformers they follow from the layer's index alone: numpy's global
/// generator is seeded with it. Throws `Error` G-MODEL-5 when there are too few blocks to choose
/// from.
torch::Tensor random_blocks(const BlockShape& shape, int64_t layer);

/// The same in evaluation, where transformers takes the first block each time.
torch::Tensor first_blocks(const BlockShape& shape);

/// softmax(q kᵀ / sqrt(width)) v over the blocks that a query sees; a block that is listed twice
/// counts twice, as in transformers.
///
/// Query, key and value are (batch, heads, tokens, width). `mask` (batch, tokens) is true for
/// tokens that are not padding; undefined when none is. The outputs of padding are 0. Returns
/// (batch, tokens, heads · width). `weights`, unless null, receives those of the softmax (batch,
/// heads, tokens, tokens).
torch::Tensor block_sparse_attention(const torch::Tensor& query, const torch::Tensor& key,
                                     const torch::Tensor& value, const torch::Tensor& random,
                                     const torch::Tensor& mask, const BlockShape& shape,
                                     torch::Tensor* weights = nullptr);

}  // namespace gradus::bigbird
