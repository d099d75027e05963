#pragma once

#include <gradus/models/backbone.h>
#include <gradus/models/layers/attention.h>
#include <gradus/models/layers/linear.h>

#include <memory>
#include <optional>
#include <vector>

namespace gradus {

/// What the attention of an architecture with encoder and decoder is built from.
struct StackAttentionOptions {
  int64_t width;       ///< Of the hidden states.
  int64_t heads;       ///< Number of heads.
  int64_t head_width;  ///< Of one head.
  size_t layer;        ///< Its number in the stack, under which a cache holds its states.
  double dropout;      ///< Of the weights, in training.
  std::optional<double> scale = std::nullopt;  ///< Of the scores; see `layers::AttentionOptions`.
};

/// What the queries of a forward pass may see, and who wants to know the weights.
struct StackAttentionPass {
  layers::AttentionMask mask = {};                   ///< Undefined where a bias holds it.
  torch::Tensor bias = {};                           ///< Added to the scores; may be undefined.
  layers::KeyValueCache* cache = nullptr;            ///< Null without a cache.
  std::vector<torch::Tensor>* attentions = nullptr;  ///< Receives the weights; null without.
};

/// The encoder's output, of which a block makes keys and values.
///
/// It is one tensor under two names. A block that is computed again has a gradient for each of
/// them, and both are added to those of other blocks in the order of a block that is not:
/// bit-equal.
struct EncoderStates {
  torch::Tensor for_values = {}, for_keys = {};
  /// Takes the two behind the first `count` inputs of a block; undefined where there are none.
  static EncoderStates behind(const std::vector<torch::Tensor>& inputs, size_t count);
  bool defined() const { return for_keys.defined(); }
  /// Appends what `behind` takes.
  static void append(const torch::Tensor& states, std::vector<torch::Tensor>& inputs) {
    inputs.insert(inputs.end(), 2, states);
  }
};

/// The mask of a decoder over the encoder's output: no padding. Nothing is masked when there is
/// none.
layers::AttentionMask cross_mask(const BackboneInputs& inputs, torch::Device device);

/// Attention over a stack's own tokens or over the encoder's output.
///
/// A subclass registers the four projections under the names and in the order of its architecture.
class StackAttention : public torch::nn::Module {
 public:
  /// Over its own tokens, those in the cache included.
  torch::Tensor forward(const torch::Tensor& x, const StackAttentionPass& pass) const;
  /// Over the encoder's output, whose keys and values are computed once per cache. A row of it
  /// serves as many rows of `x` in a row as fit: the beams of a prompt share one.
  torch::Tensor cross(const torch::Tensor& x, const EncoderStates& encoder_states,
                      const StackAttentionPass& pass) const;

  std::shared_ptr<layers::Linear> query, key, value, output;  ///< Set by the subclass.

 protected:
  explicit StackAttention(const StackAttentionOptions& options) : options_(options) {}
  /// Registers one of the projections; its sizes follow from the options.
  std::shared_ptr<layers::Linear> project_in(const char* name, bool with_bias);
  /// The same for the projection of the output.
  std::shared_ptr<layers::Linear> project_out(const char* name, bool with_bias);

 private:
  /// (rows, tokens, inner) as (rows, heads, tokens, head width).
  torch::Tensor by_heads(const torch::Tensor& x) const;
  torch::Tensor attend(const torch::Tensor& queries, const layers::KeyValueCache::States& states,
                       const StackAttentionPass& pass) const;

  StackAttentionOptions options_;
};

}  // namespace gradus
