#pragma once

#include <gradus/models/backbone.h>
#include <gradus/models/layers/activation.h>
#include <gradus/models/layers/module_list.h>
#include <torch/nn/modules/normalization.h>

#include <functional>
#include <memory>

namespace gradus {

/// Where the layers of a post-norm block stand, in the order of the files ("attention.self.query").
struct EncoderBlockNames {
  const char *query, *key, *value, *attended, *attention_norm, *inner, *output, *output_norm;
};

/// Those of BERT and of models made after it.
inline constexpr EncoderBlockNames kBertBlock = {"attention.self.query",
                                                 "attention.self.key",
                                                 "attention.self.value",
                                                 "attention.output.dense",
                                                 "attention.output.LayerNorm",
                                                 "intermediate.dense",
                                                 "output.dense",
                                                 "output.LayerNorm"};

struct EncoderBlockOptions {
  int64_t width, heads, inner;
  layers::Activation activation;
  double attention_dropout;  ///< on the attention weights
  double attended_dropout;   ///< behind the attention
  double output_dropout;     ///< behind the MLP
  double norm_eps;
  bool attention_bias = true;  ///< of query, key and value
};

/// Attention of another kind than every token to every token, for the block `layer`. Query, key and
/// value are (batch, heads, tokens, width), the result is (batch, tokens, heads · width).
/// `weights`, unless null, receives (batch, heads, tokens, tokens).
using EncoderAttention =
    std::function<torch::Tensor(size_t layer, const torch::Tensor& query, const torch::Tensor& key,
                                const torch::Tensor& value, torch::Tensor* weights)>;

/// Attention and MLP, each added to its input and then normalised.
class EncoderBlock : public torch::nn::Module {
 public:
  /// What the blocks of one forward pass share.
  struct Pass {
    layers::AttentionMask mask;
    bool first_only = false;  ///< only the first token is asked for
    std::vector<torch::Tensor>* attentions = nullptr;
    EncoderAttention attention = nullptr;  ///< in place of full attention with `mask`
    size_t layer = 0;                      ///< the index of the block
  };

  EncoderBlock(const EncoderBlockOptions& options, const EncoderBlockNames& names);
  torch::Tensor forward(const torch::Tensor& x, const Pass& pass) const;
  /// Whether adapters of layers that work for the queries draw random numbers. In transformers they
  /// draw for all tokens, so that none may be left out.
  bool adapters_draw() const;

 private:
  torch::Tensor attention(const torch::Tensor& queries, const torch::Tensor& x,
                          const Pass& pass) const;

  EncoderBlockOptions options_;
  std::shared_ptr<layers::Linear> query_, key_, value_, attended_, inner_, output_;
  std::shared_ptr<torch::nn::LayerNormImpl> attention_norm_, output_norm_;
};

/// A body whose blocks see all tokens in both directions. Subclasses make the embeddings.
class EncoderBody : public Backbone {
 public:
  int64_t hidden_size() const override { return width_; }
  std::optional<AttentionShape> attention_shape() const override { return attention_; }

 protected:
  /// Registers `count` blocks under `path`.
  void add_blocks(const char* path, int64_t count, const EncoderBlockOptions& options,
                  const EncoderBlockNames& names);
  enum class Sees { all_tokens, earlier_tokens };
  /// From embeddings (batch, tokens, width) to the output of the last block.
  BackboneOutput encode(torch::Tensor x, const BackboneInputs& inputs,
                        Sees sees = Sees::all_tokens) const;
  /// The same with attention of another kind, which knows about padding itself.
  BackboneOutput encode(torch::Tensor x, const BackboneInputs& inputs,
                        EncoderAttention attention) const;

 private:
  BackboneOutput run_blocks(torch::Tensor x, const BackboneInputs& inputs,
                            EncoderBlock::Pass pass) const;

  int64_t width_ = 0;
  AttentionShape attention_;
  std::shared_ptr<layers::ModuleList<EncoderBlock>> blocks_;
};

}  // namespace gradus
