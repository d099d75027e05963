#pragma once

#include <gradus/models/backbone.h>
#include <gradus/models/layers/activation.h>
#include <gradus/models/layers/module_list.h>
#include <gradus/models/pretrained_model.h>

#include <memory>
#include <optional>
#include <vector>

namespace gradus {

/// config.json of model_type "t5" or "mt5", checked. Defaults are transformers'.
struct T5Config {
  explicit T5Config(const nlohmann::json& values);

  int64_t vocabulary, width, head_width, inner, encoder_blocks, decoder_blocks, heads;
  int64_t buckets, max_distance;  ///< of the relative positions
  double dropout, norm_eps, classifier_dropout;
  double init_factor;
  layers::Activation activation;
  bool gated;          ///< two input projections, one of them through the activation
  bool scale_outputs;  ///< the decoder's output times width^-0.5 before the head: the first T5, not
                       ///< v1.1
};

/// The bucket of each relative position (key minus query), int64: fine near zero, logarithmic
/// further away.
torch::Tensor relative_position_buckets(torch::Tensor positions, bool bidirectional,
                                        int64_t buckets, int64_t max_distance);

class T5Block;

/// The encoder, or the decoder with cross-attention.
///
/// `BackboneInputs::encoder_hidden_states` and its mask are read by a decoder; `cache` holds keys
/// and values of both kinds of attention.
class T5Stack : public Backbone {
 public:
  T5Stack(const T5Config& config, bool is_decoder);

  layers::Embedding& input_embeddings() override { return *embed_tokens_; }
  int64_t hidden_size() const override { return width_; }
  bool decodes_in_place() const override { return is_decoder_; }
  BackboneOutput forward(const BackboneInputs& inputs) override;

 private:
  int64_t width_;
  double dropout_;
  int64_t max_distance_;
  bool is_decoder_;
  std::shared_ptr<layers::Embedding> embed_tokens_;
  std::shared_ptr<layers::ModuleList<T5Block>> block_;
  std::shared_ptr<layers::RMSNorm> final_layer_norm_;
};

/// Initial values of what a stack is made of; false for modules of another kind.
bool init_t5_module(torch::nn::Module& module, const Initializer& initializer,
                    const T5Config& config);

}  // namespace gradus
