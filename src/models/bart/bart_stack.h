#pragma once

#include <gradus/models/backbone.h>
#include <gradus/models/layers/activation.h>
#include <gradus/models/layers/module_list.h>
#include <torch/nn/modules/normalization.h>

#include <memory>
#include <optional>

namespace gradus {

/// config.json of model_type "bart" or "mbart", checked. Defaults are transformers'.
struct BartConfig {
  explicit BartConfig(const nlohmann::json& values);

  /// What the two stacks may have differently.
  struct StackSizes {
    int64_t blocks, heads, inner;
    double layerdrop;  ///< The probability with which a block is left out in training.
  };
  StackSizes encoder, decoder;
  int64_t vocabulary, width, positions;
  std::optional<int64_t> padding_index;
  layers::Activation activation;
  double dropout, attention_dropout, activation_dropout, classifier_dropout;
  double embedding_scale;  ///< The token embeddings are multiplied by it.
  bool tied;               ///< The stacks and the head share one table.
  bool multilingual;       ///< mBART: norms before the layers and one more at the end.
};

class BartBlock;

/// The encoder, or the decoder with cross-attention.
///
/// `BackboneInputs::encoder_hidden_states` and its mask are read by a decoder; `cache` holds keys
/// and values of both kinds of attention. Positions count from the first token of a row, padding
/// included, as in transformers.
class BartStack : public Backbone {
 public:
  BartStack(const BartConfig& config, bool is_decoder);

  layers::Embedding& input_embeddings() override { return *embed_tokens_; }
  int64_t hidden_size() const override { return width_; }
  std::optional<int64_t> position_limit() const override;
  bool decodes_in_place() const override { return is_decoder_; }
  BackboneOutput forward(const BackboneInputs& inputs) override;

 private:
  torch::Tensor embedded(const BackboneInputs& inputs);
  torch::Tensor within_range(const torch::Tensor& x) const;

  int64_t width_;
  double dropout_, layerdrop_, scale_;
  bool is_decoder_, multilingual_;
  std::shared_ptr<layers::Embedding> embed_tokens_, embed_positions_;
  std::shared_ptr<layers::ModuleList<BartBlock>> layers_;
  std::shared_ptr<torch::nn::LayerNormImpl> layernorm_embedding_;
  std::shared_ptr<torch::nn::LayerNormImpl> layer_norm_;  ///< mBART only, else null.
};

}  // namespace gradus
