#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace gradus {

/// One call of attention as a model makes it, without its tensors.
///
/// A model describes itself with it (`Model::attention_shape`), and `device::measure_attention`
/// finds the fastest implementation for it.
struct AttentionShape {
  int64_t batch = 1;      ///< rows
  int64_t tokens = 1;     ///< queries, and as many keys
  int64_t heads = 1;      ///< heads of the queries
  int64_t key_heads = 1;  ///< heads of keys and values; fewer with grouped queries
  int64_t width = 64;     ///< of one head
  c10::ScalarType dtype = c10::ScalarType::BFloat16;  ///< of query, key and value
  double dropout = 0;                                 ///< on the attention weights, in training
  bool causal = true;                                 ///< a query sees the keys up to its own place
};

}  // namespace gradus
