#pragma once

#include <gradus/data/batch.h>
#include <gradus/models/layers/attention.h>
#include <gradus/models/layers/linear.h>
#include <gradus/models/model.h>
#include <torch/nn/module.h>

#include <functional>
#include <optional>
#include <vector>

namespace gradus {

/// What the body of a model takes. Tensors that are not there are undefined.
struct BackboneInputs {
  torch::Tensor input_ids = {};       ///< (batch, tokens); or
  torch::Tensor inputs_embeds = {};   ///< (batch, tokens, width)
  torch::Tensor attention_mask = {};  ///< (batch, tokens in the cache and here), 0 = padding
  torch::Tensor position_ids = {};    ///< (batch or 1, tokens)
  torch::Tensor token_type_ids = {};
  torch::Tensor sequence_ids = {};  ///< which packed sequence a token is of
  torch::Tensor encoder_hidden_states =
      {};  ///< decoders with cross-attention: (batch, encoder tokens, width)
  torch::Tensor encoder_attention_mask = {};  ///< (batch, encoder tokens), 0 = padding
  layers::KeyValueCache* cache = nullptr;
  bool output_hidden_states = false;
  bool output_attentions = false;
  bool first_token_only = false;  ///< the head reads the first token alone: a body may leave out
                                  ///< the others in its last block and output

  /// Whether what `first_token_only` allows can be done: nobody looks at the last block as a whole.
  bool may_leave_out_tokens() const {
    return first_token_only && !output_hidden_states && !output_attentions;
  }
  int64_t rows() const { return (input_ids.defined() ? input_ids : inputs_embeds).size(0); }
  int64_t tokens() const { return (input_ids.defined() ? input_ids : inputs_embeds).size(1); }
};

/// Picks the tensors a body takes out of a batch. Throws `Error` G-MODEL-11 when there is neither
/// input_ids nor inputs_embeds.
BackboneInputs backbone_inputs(const Batch& inputs, const ForwardOptions& options = {});

struct BackboneOutput {
  torch::Tensor last_hidden_state = {};  ///< (batch, tokens, width)
  torch::Tensor pooler_output = {};      ///< (batch, width), of bodies that pool their first token
  std::vector<torch::Tensor>
      hidden_states;                      ///< embeddings and every block's output, when asked for
  std::vector<torch::Tensor> attentions;  ///< every block's weights, when asked for
  std::vector<torch::Tensor> cross_attentions;  ///< the same over the encoder's tokens
};

/// The body of a model without a head: ids in, hidden states out.
class Backbone : public torch::nn::Module {
 public:
  virtual BackboneOutput forward(const BackboneInputs& inputs) = 0;
  virtual layers::Embedding& input_embeddings() = 0;
  virtual int64_t hidden_size() const = 0;

  std::optional<GradientCheckpointing> gradient_checkpointing;
  std::optional<double> embedding_noise;  ///< NEFTune's alpha

 protected:
  /// Token embeddings with NEFTune's noise in training, or the given `inputs_embeds`.
  torch::Tensor embed(const BackboneInputs& inputs);
  /// Whether the block at `index` is to run through `layers::checkpoint` with
  /// `*gradient_checkpointing`: that is switched on for it, and the model trains.
  bool recomputes(size_t index) const;
};

/// x + U(-m, m) with m = alpha / sqrt(tokens · width).
torch::Tensor add_embedding_noise(const torch::Tensor& embeddings, double alpha);

/// Position ids 0, 1, … behind `offset` earlier tokens, shaped (1, tokens).
torch::Tensor running_positions(int64_t offset, int64_t tokens, torch::Device device);

}  // namespace gradus
