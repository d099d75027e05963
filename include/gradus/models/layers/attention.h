#pragma once

#include <gradus/data/batch.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace gradus::layers {

/// Which keys the queries of a forward pass may attend to. It is built once and shared by all
/// layers of a kind.
struct AttentionMask {
  /// (batch or 1, 1, queries, keys): bool, where true means attend, or numbers that are added to
  /// the scores. Undefined for no mask.
  torch::Tensor mask = {};
  bool causal = false;  ///< Only keys up to the query's position; `mask` is then undefined.
  /// (sequences + 1) int32: where the sequences that are packed into the only row begin, and its
  /// length. A token attends to those before it in its own sequence; `mask` is then undefined.
  torch::Tensor starts = {};
  /// With `causal` or `starts`: how many keys a query sees, its own included. Unset for all.
  std::optional<int64_t> window = std::nullopt;
  /// `mask` as float32 numbers that are added to the scores of single queries on a GPU. The first
  /// layer that needs it makes it for all.
  mutable torch::Tensor added = {};
};

/// What `make_attention_mask` builds a mask from.
struct MaskRequest {
  int64_t batch = 0;                   ///< Sequences in the batch.
  int64_t queries = 0;                 ///< New tokens.
  int64_t keys = 0;                    ///< Cached and new tokens; the queries are the last ones.
  torch::Device device = torch::kCPU;  ///< Where the mask is needed.
  /// (batch, keys) with 0 for padding, or a finished mask with four dimensions. May be undefined.
  torch::Tensor attention_mask = {};
  /// (batch or 1, queries): the packed sequence of each token. May be undefined.
  torch::Tensor sequence_ids = {};
  /// The same as `AttentionMask::starts`, where `attention_takes_starts`; may be undefined.
  torch::Tensor starts = {};
  /// How many keys a query sees, its own included.
  std::optional<int64_t> sliding_window = std::nullopt;
  /// Whether `attention_takes_window`; a window of causal attention then needs no mask.
  bool takes_window = false;
  bool causal = true;  ///< Whether a query sees no later keys.
};

/// Builds a mask, as simple as the values allow so that the fast kernels apply. On a GPU the values
/// are not read, because the host would have to wait for the device.
AttentionMask make_attention_mask(const MaskRequest& request);

/// Whether `attention` can use `AttentionMask::starts` for a hidden state like `x` and heads of
/// `width`: on the CPU, or on a GPU where the flash kernel takes dtype and width. `dropout` is that
/// of the weights.
bool attention_takes_starts(const torch::Tensor& x, int64_t width, double dropout);

/// Whether `attention` can use `AttentionMask::window`, for the same arguments: on a GPU where the
/// flash kernel takes dtype and width. A window then costs what its keys cost.
bool attention_takes_window(const torch::Tensor& x, int64_t width, double dropout);

/// Joins a position bias (1 or batch, heads or 1, queries, keys) and a mask: masked entries become
/// the lowest number of `dtype`. The result serves all layers as `AttentionOptions::position_bias`
/// and needs no further mask.
torch::Tensor masked_bias(const torch::Tensor& bias, const AttentionMask& mask, torch::Dtype dtype);

/// The packed sequence that each token belongs to. It comes from `seq_idx`, `cu_seq_lens_q` or, in
/// a batch without attention_mask, from `position_ids` that restart. Undefined when nothing is
/// packed.
torch::Tensor packed_sequence_ids(const Batch& inputs, int64_t batch, int64_t length);

/// Options of `attention`.
struct AttentionOptions {
  double dropout = 0.0;                        ///< Probability of dropping a weight.
  std::optional<double> scale = std::nullopt;  ///< By default 1/sqrt(width of a head).
  torch::Tensor position_bias = {};  ///< (1 or batch, heads, queries, keys), added to the scores.
  /// Receives the softmax weights (batch, heads, queries, keys); null when they are not needed.
  torch::Tensor* weights = nullptr;
  /// (batch, keys) int32: which row of key and value holds a token of a sequence. Undefined when
  /// row i holds all of sequence i. See `KeyValueCache::States`.
  torch::Tensor key_rows = {};
};

/// softmax(q kᵀ · scale + mask) v. The query is (batch, heads, queries, width); key and value
/// have as many heads or a divisor of that number. Returns (batch, queries, heads · width).
torch::Tensor attention(const torch::Tensor& query, const torch::Tensor& key,
                        const torch::Tensor& value, const AttentionMask& mask,
                        const AttentionOptions& options = {});

/// Keys and values of all tokens so far, per layer (batch, heads, tokens, width).
///
/// Memory grows in steps, so that most tokens are written in place. In float32 on the CPU the beams
/// of a search need no copies either: a table says which row holds a token, and `attention` reads
/// through it. Thread-safety: none.
class KeyValueCache {
 public:
  /// Keys and values of one layer.
  struct States {
    torch::Tensor keys;       ///< (batch, heads, tokens, width); more rows where `rows` is defined.
    torch::Tensor values;     ///< The same shape.
    torch::Tensor rows = {};  ///< For `AttentionOptions::key_rows`.
  };

  /// Appends the new tokens of a layer and returns all of its tokens.
  States update(size_t layer, const torch::Tensor& keys, const torch::Tensor& values);
  /// Number of tokens in layer 0. During a forward pass this includes the new tokens as soon as
  /// layer 0 has run.
  int64_t length() const { return layers_.empty() ? 0 : layers_[0].length; }
  /// A cache of fixed shape with the same tokens, or those of `rows` (int64) alone, and room for
  /// `room`. Every new token is written at `place` (one int64 on the device, which the caller moves
  /// on), and `update` returns all of the room: the attention mask says what of it counts. So all
  /// steps are the same work, which can be recorded. `length` is then `room` - 1.
  KeyValueCache fixed(int64_t room, const torch::Tensor& place,
                      const torch::Tensor& rows = {}) const;
  /// Of a cache of fixed shape: where the next token is written; undefined for others.
  const torch::Tensor& place() const { return place_; }
  /// Keeps the rows `rows` (int64) in that order, as beam search needs after a step. The states
  /// over the encoder's output stay as they are: the beams of a prompt share them. In a cache of
  /// fixed shape the states move within their memory; it keeps the number of rows.
  void select_rows(const torch::Tensor& rows);

  /// The states of a layer over the encoder's output, or null before `set_cross`. They do not
  /// change during generation.
  const States* cross(size_t layer) const {
    return layer < cross_.size() && cross_[layer].keys.defined() ? &cross_[layer] : nullptr;
  }
  /// Keeps these rows of the states over the encoder's output.
  void select_cross(const torch::Tensor& rows);
  /// Stores the states of a layer over the encoder's output.
  void set_cross(size_t layer, States states);

 private:
  struct Layer {
    torch::Tensor keys, values;  ///< With room for more tokens.
    int64_t length = 0;
  };
  void point_to(const torch::Tensor& rows);
  void copy_rows(const torch::Tensor& rows);
  void move_rows(const torch::Tensor& rows);

  std::vector<Layer> layers_;
  std::vector<States> cross_;
  torch::Tensor rows_;   ///< (batch, room) int32: see `States::rows`; undefined at first.
  torch::Tensor spare_;  ///< Memory that rows are written to on their way; undefined at first.
  torch::Tensor place_;  ///< Of a fixed cache: where the next token goes.
};

}  // namespace gradus::layers
