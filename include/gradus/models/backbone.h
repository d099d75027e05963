#pragma once

#include <gradus/data/batch.h>
#include <gradus/models/layers/attention.h>
#include <gradus/models/layers/linear.h>
#include <gradus/models/model.h>
#include <torch/nn/module.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

namespace gradus {

/// The inputs of a model's body. Missing tensors are undefined. Either `input_ids` or
/// `inputs_embeds` is given.
struct BackboneInputs {
  torch::Tensor input_ids = {};       ///< (batch, tokens).
  torch::Tensor inputs_embeds = {};   ///< (batch, tokens, width).
  torch::Tensor attention_mask = {};  ///< (batch, tokens including cached ones), 0 for padding.
  torch::Tensor position_ids = {};    ///< (batch or 1, tokens).
  torch::Tensor token_type_ids = {};  ///< (batch, tokens): first or second text (BERT).
  torch::Tensor sequence_ids = {};    ///< (batch or 1, tokens): the packed sequence of a token.
  /// (sequences + 1) int32: where the packed sequences of the only row begin (`cu_seq_lens_q`).
  torch::Tensor sequence_starts = {};
  /// Whether all padding of `attention_mask` is behind the text and nobody reads what is computed
  /// for it: the batch has an entry `kIsRightPadded`. Causal bodies then need no mask.
  bool is_right_padded = false;
  /// (batch, encoder tokens, width), for decoders with cross-attention.
  torch::Tensor encoder_hidden_states = {};
  torch::Tensor encoder_attention_mask = {};  ///< (batch, encoder tokens), 0 for padding.
  layers::KeyValueCache* cache = nullptr;     ///< Keys and values so far; null without a cache.
  bool output_hidden_states = false;          ///< Whether to return every block's output.
  bool output_attentions = false;             ///< Whether to return the attention weights.
  /// Whether the head reads only the first token. The body may then skip the other tokens in its
  /// last block and in its output.
  bool first_token_only = false;

  /// Whether tokens may be skipped: `first_token_only`, and no output of whole blocks is asked for.
  bool may_leave_out_tokens() const {
    return first_token_only && !output_hidden_states && !output_attentions;
  }
  /// Number of sequences in the batch.
  int64_t rows() const { return (input_ids.defined() ? input_ids : inputs_embeds).size(0); }
  /// Number of tokens in a row.
  int64_t tokens() const { return (input_ids.defined() ? input_ids : inputs_embeds).size(1); }
};

/// The name of an entry that says by its presence that all padding of a batch is on the right, and
/// that nobody reads the model's outputs there. The host looks before a batch goes to a GPU.
inline constexpr const char* kIsRightPadded = "is_right_padded";

/// Takes a body's inputs from a batch. Throws `Error` G-MODEL-11 when the batch holds neither or
/// both of input_ids and inputs_embeds, and for a wrong shape.
BackboneInputs backbone_inputs(const Batch& inputs, const ForwardOptions& options = {});

/// The mask `name` of a batch for a body that sees `rows` x `tokens`. Undefined when the batch has
/// none, or knows that it is all ones (`Batch::known_all_ones`): then it changes nothing.
torch::Tensor needed_mask(const Batch& inputs, const char* name, int64_t rows, int64_t tokens);

/// The outputs of a model's body.
struct BackboneOutput {
  torch::Tensor last_hidden_state = {};  ///< (batch, tokens, width).
  torch::Tensor pooler_output = {};      ///< (batch, width); only of bodies with a pooler.
  /// The embeddings and every block's output, when asked for.
  std::vector<torch::Tensor> hidden_states;
  std::vector<torch::Tensor> attentions;  ///< Every block's attention weights, when asked for.
  std::vector<torch::Tensor> cross_attentions;  ///< The same for cross-attention.
};

/// The body of a model without a head: token ids in, hidden states out.
class Backbone : public torch::nn::Module {
 public:
  /// Runs the body.
  virtual BackboneOutput forward(const BackboneInputs& inputs) = 0;
  /// The table of token embeddings.
  virtual layers::Embedding& input_embeddings() = 0;
  /// Width of the hidden states.
  virtual int64_t hidden_size() const = 0;
  /// The rows of the table of positions; `nullopt` when there is none.
  virtual std::optional<int64_t> position_limit() const { return std::nullopt; }
  /// How the blocks call attention; `batch`, `tokens` and `dtype` are filled in by others.
  /// `nullopt`: their attention is of a kind that is not measured.
  virtual std::optional<AttentionShape> attention_shape() const { return std::nullopt; }

  /// See `PreTrainedModel::decodes_in_place`.
  virtual bool decodes_in_place() const { return false; }

  /// See `Model::memory`.
  virtual nlohmann::json memory() const;
  /// See `Model::load_memory`.
  virtual void load_memory(const nlohmann::json& memory);

  /// Told after the table of token embeddings was replaced by one of another size.
  virtual void tokens_resized() {}

  /// How activations are recomputed in the backward pass; unset keeps them all.
  std::optional<GradientCheckpointing> gradient_checkpointing;
  std::optional<double> embedding_noise;  ///< NEFTune's alpha; unset for no noise.

 protected:
  /// The token embeddings, in training with NEFTune's noise; or the given `inputs_embeds`.
  torch::Tensor embed(const BackboneInputs& inputs);
  /// Whether the block at `index` of a stack of `blocks` runs through `layers::checkpoint`:
  /// gradient checkpointing is on for it and the model is in training mode.
  bool recomputes(size_t index, size_t blocks) const;
};

/// Adds NEFTune's noise: embeddings + U(-m, m) with m = alpha / sqrt(tokens · width).
torch::Tensor add_embedding_noise(const torch::Tensor& embeddings, double alpha);

/// Position ids `offset`, `offset` + 1, …, of shape (1, tokens).
torch::Tensor running_positions(int64_t offset, int64_t tokens, torch::Device device);

}  // namespace gradus
