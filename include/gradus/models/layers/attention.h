#pragma once

#include <gradus/data/batch.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace gradus::layers {

/// What the queries of one forward pass may look at; made once and used by all layers of a kind.
struct AttentionMask {
  torch::Tensor mask = {};  ///< (batch or 1, 1, queries, keys): bool with true = look, or numbers
                            ///< to add; undefined: everything
  bool causal = false;      ///< only keys up to the query's own place; then `mask` is undefined
};

struct MaskRequest {
  int64_t batch = 0;
  int64_t queries = 0;
  int64_t keys = 0;  ///< with those in the cache; the queries are the last of them
  torch::Device device = torch::kCPU;
  torch::Tensor attention_mask =
      {};  ///< (batch, keys), 0 = padding; or a ready mask of four dimensions; may be undefined
  torch::Tensor sequence_ids =
      {};  ///< (batch or 1, queries): which of the packed sequences a token is of; may be undefined
  std::optional<int64_t> sliding_window =
      std::nullopt;  ///< look back at this many keys only, the own one included
  bool causal = true;
};

/// The mask for a request, as simple as its values allow, so that the fast kernels apply.
/// On a GPU the values are not looked at: that would make the step wait for the device.
AttentionMask make_attention_mask(const MaskRequest& request);

/// `bias` (1 or batch, heads or 1, queries, keys) with the lowest number wherever `mask` forbids to
/// look: made once, it serves all layers as `AttentionOptions::position_bias` without a further
/// mask.
torch::Tensor masked_bias(const torch::Tensor& bias, const AttentionMask& mask, torch::Dtype dtype);

/// Which packed sequence each token is of: from `seq_idx`, `cu_seq_lens_q` or restarting
/// `position_ids` of a batch without attention_mask. Undefined when nothing is packed.
torch::Tensor packed_sequence_ids(const Batch& inputs, int64_t batch, int64_t length);

struct AttentionOptions {
  double dropout = 0.0;
  std::optional<double> scale = std::nullopt;  ///< default: 1/sqrt(head width)
  torch::Tensor position_bias =
      {};  ///< (1 or batch, heads, queries, keys), added to the scores (T5)
  torch::Tensor* weights =
      nullptr;  ///< where to put the softmax weights (batch, heads, queries, keys) when asked for
};

/// softmax(q kᵀ · scale + mask) v for q (batch, heads, queries, width) and k, v with as many
/// heads or a divisor of them. Gives (batch, queries, heads · width).
torch::Tensor attention(const torch::Tensor& query, const torch::Tensor& key,
                        const torch::Tensor& value, const AttentionMask& mask,
                        const AttentionOptions& options = {});

/// Keys and values of the tokens seen so far, per layer (batch, heads, tokens, width).
///
/// Memory grows in steps, so that most tokens are written in place. Thread-safety: none.
class KeyValueCache {
 public:
  struct States {
    torch::Tensor keys, values;
  };

  /// Adds the new tokens of a layer and gives all of them.
  States update(size_t layer, const torch::Tensor& keys, const torch::Tensor& values);
  /// Tokens seen, before the forward pass that is under way has reached layer 0.
  int64_t length() const { return layers_.empty() ? 0 : layers_[0].length; }
  /// Keeps the rows `rows` (int64), in that order: what beam search needs after a step.
  void select_rows(const torch::Tensor& rows);

  /// States over the encoder's output, which never change during generation; null until set.
  const States* cross(size_t layer) const {
    return layer < cross_.size() && cross_[layer].keys.defined() ? &cross_[layer] : nullptr;
  }
  void set_cross(size_t layer, States states);

 private:
  struct Layer {
    torch::Tensor keys, values;  ///< with room for more tokens
    int64_t length = 0;
  };
  std::vector<Layer> layers_;
  std::vector<States> cross_;
};

}  // namespace gradus::layers
