#include "models/vit/vit.h"
#include "core/parsed_json.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/layers/activation.h>
#include <gradus/models/layers/attention.h>
#include <gradus/models/layers/checkpoint.h>
#include <gradus/models/layers/module_list.h>
#include <gradus/models/layers/module_path.h>
#include <torch/nn/modules/normalization.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "models/image/convolution.h"
#include "models/image/image_model.h"

namespace gradus {

using torch::Tensor;

namespace {

struct ViTConfig {
  explicit ViTConfig(const nlohmann::json& values) {
    const ConfigReader read(values);
    width = read.integer("hidden_size", 768);
    blocks = read.integer("num_hidden_layers", 12, 1, 10000);
    heads = read.integer("num_attention_heads", 12);
    inner = read.integer("intermediate_size", 3072);
    activation = layers::activation_named(read.text("hidden_act", "gelu"));
    hidden_dropout = read.probability("hidden_dropout_prob", 0.0);
    attention_dropout = read.probability("attention_probs_dropout_prob", 0.0);
    norm_eps = read.number("layer_norm_eps", 1e-12, 0.0);
    image = pair_in(read, "image_size", 224);
    patch = pair_in(read, "patch_size", 16);
    channels = read.integer("num_channels", 3, 1, 4096);
    qkv_bias = read.flag("qkv_bias", true);
    if (width % heads != 0)
      read.fail("hidden_size", "a multiple of num_attention_heads (" + std::to_string(heads) + ")",
                std::to_string(width));
    if (patch[0] > image[0] || patch[1] > image[1])
      read.fail("patch_size", "at most image_size", fmt::format("{} x {}", patch[0], patch[1]));
  }

  int64_t patches() const { return (image[0] / patch[0]) * (image[1] / patch[1]); }

  int64_t width, blocks, heads, inner, channels;
  layers::Activation activation;
  double hidden_dropout, attention_dropout, norm_eps;
  std::array<int64_t, 2> image, patch;
  bool qkv_bias;
};

std::shared_ptr<torch::nn::LayerNormImpl> vit_norm(const ViTConfig& config) {
  return std::make_shared<torch::nn::LayerNormImpl>(
      torch::nn::LayerNormOptions({config.width}).eps(config.norm_eps));
}

/// A vector for each patch and one for the class, with a position each.
class ViTEmbeddings : public torch::nn::Module {
 public:
  explicit ViTEmbeddings(const ViTConfig& config)
      : image_(config.image), dropout_(config.hidden_dropout) {
    class_token = register_parameter("cls_token", at::empty({1, 1, config.width}, at::kFloat));
    positions = register_parameter("position_embeddings",
                                   at::empty({1, config.patches() + 1, config.width}, at::kFloat));
    projection_ = layers::register_at(
        *this, "patch_embeddings.projection",
        std::make_shared<layers::Convolution>(layers::ConvolutionOptions{.in = config.channels,
                                                                         .out = config.width,
                                                                         .kernel = config.patch,
                                                                         .stride = config.patch}));
  }

  Tensor forward(const Tensor& pixels) const {
    if (pixels.size(2) != image_[0] || pixels.size(3) != image_[1])
      throw Error("G-MODEL-32", ErrorKind::model,
                  fmt::format("the images have {} x {} pixels, the model takes {} x {}",
                              pixels.size(2), pixels.size(3), image_[0], image_[1]),
                  "Set size in preprocessor_config.json to the model's image_size.");
    const auto patches = projection_->forward(pixels).flatten(2).transpose(1, 2);
    const auto tokens = at::cat({class_token.expand({pixels.size(0), -1, -1}), patches}, 1);
    return layers::dropout(tokens + positions, dropout_, is_training());
  }

  Tensor class_token, positions;

 private:
  std::array<int64_t, 2> image_;
  double dropout_;
  std::shared_ptr<layers::Convolution> projection_;
};

/// Attention and MLP, each of a norm and added to what came in.
class ViTLayer : public torch::nn::Module {
 public:
  explicit ViTLayer(const ViTConfig& config) : config_(config) {
    const auto linear = [&](const char* path, int64_t in, int64_t out, bool bias) {
      return layers::register_at(*this, path, std::make_shared<layers::Linear>(in, out, bias));
    };
    query_ = linear("attention.q_proj", config.width, config.width, config.qkv_bias);
    key_ = linear("attention.k_proj", config.width, config.width, config.qkv_bias);
    value_ = linear("attention.v_proj", config.width, config.width, config.qkv_bias);
    output_ = linear("attention.o_proj", config.width, config.width, true);
    before_ = register_module("layernorm_before", vit_norm(config));
    after_ = register_module("layernorm_after", vit_norm(config));
    inner_ = linear("mlp.fc1", config.width, config.inner, true);
    outer_ = linear("mlp.fc2", config.inner, config.width, true);
  }

  Tensor forward(const Tensor& x) const {
    const auto attended = output_->forward(attention(before_->forward(x)));
    const auto middle = layers::dropout(attended, config_.hidden_dropout, is_training()) + x;
    const auto mixed =
        outer_->forward(config_.activation(inner_->forward(after_->forward(middle))));
    return layers::dropout(mixed, config_.hidden_dropout, is_training()) + middle;
  }

 private:
  Tensor attention(const Tensor& x) const {
    const auto by_heads = [&](const Tensor& y) {
      return y.view({y.size(0), y.size(1), config_.heads, -1}).transpose(1, 2);
    };
    layers::AttentionOptions options;
    options.dropout = is_training() ? config_.attention_dropout : 0.0;
    // In this order: the dropout of adapters draws, and arguments have none.
    const auto query = by_heads(query_->forward(x)), key = by_heads(key_->forward(x)),
               value = by_heads(value_->forward(x));
    return layers::attention(query, key, value, {}, options);
  }

  ViTConfig config_;
  std::shared_ptr<layers::Linear> query_, key_, value_, output_, inner_, outer_;
  std::shared_ptr<torch::nn::LayerNormImpl> before_, after_;
};

/// The vector of the class token behind all layers.
class ViTBody : public ImageBody {
 public:
  explicit ViTBody(const ViTConfig& config) : width_(config.width), channels_(config.channels) {
    embeddings_ = register_module("embeddings", std::make_shared<ViTEmbeddings>(config));
    layers_ = register_module("layers", std::make_shared<layers::ModuleList<ViTLayer>>());
    for (int64_t i = 0; i < config.blocks; ++i)
      layers_->push_back(std::make_shared<ViTLayer>(config));
    norm_ = register_module("layernorm", vit_norm(config));
  }

  int64_t features() const override { return width_; }
  int64_t channels() const override { return channels_; }

  Tensor forward(const Tensor& pixels) override {
    auto x = embeddings_->forward(pixels);
    for (int64_t i = 0; const auto& layer : *layers_) {
      const bool recomputed =
          gradient_checkpointing && is_training() &&
          gradient_checkpointing->recomputes(i++, static_cast<int64_t>(layers_->size()));
      x = recomputed ? layers::checkpoint([layer](const Tensor& y) { return layer->forward(y); }, x,
                                          *gradient_checkpointing)
                     : layer->forward(x);
    }
    return norm_->forward(x.select(1, 0));
  }

 private:
  int64_t width_, channels_;
  std::shared_ptr<ViTEmbeddings> embeddings_;
  std::shared_ptr<layers::ModuleList<ViTLayer>> layers_;
  std::shared_ptr<torch::nn::LayerNormImpl> norm_;
};

bool init_vit(torch::nn::Module& module, const Initializer& initializer,
              const nlohmann::json& config) {
  const auto* embeddings = dynamic_cast<ViTEmbeddings*>(&module);
  if (embeddings == nullptr) return false;
  const auto range = ConfigReader(config).number("initializer_range", 0.02, 0.0, 1e6);
  const auto deviation = range == 0.0 ? 0.02 : range;
  draw_truncated_normal(embeddings->positions, deviation, initializer);
  draw_truncated_normal(embeddings->class_token, deviation, initializer);
  return true;
}

/// Files keep the names that the modules had before transformers 5.
const WeightTable& vit_weight_table() {
  static const WeightTable table = {
      {{"*encoder.layer.*.attention.attention.query.*", "*layers.*.attention.q_proj.*"},
       {"*encoder.layer.*.attention.attention.key.*", "*layers.*.attention.k_proj.*"},
       {"*encoder.layer.*.attention.attention.value.*", "*layers.*.attention.v_proj.*"},
       {"*encoder.layer.*.attention.output.dense.*", "*layers.*.attention.o_proj.*"},
       {"*encoder.layer.*.intermediate.dense.*", "*layers.*.mlp.fc1.*"},
       {"*encoder.layer.*.output.dense.*", "*layers.*.mlp.fc2.*"},
       {"*encoder.layer.*.layernorm_before.*", "*layers.*.layernorm_before.*"},
       {"*encoder.layer.*.layernorm_after.*", "*layers.*.layernorm_after.*"}},
      {}};
  return table;
}

}  // namespace

std::vector<BuiltinModel> vit_models() {
  return {{"vit", ModelTask::image_classification,
           [](const nlohmann::json& config) -> std::shared_ptr<PreTrainedModel> {
             return std::make_shared<ImageClassifierModel>(
                 config,
                 ImageModelOptions{.class_name = "ViTForImageClassification",
                                   .prefix = "vit",
                                   .divides_loss = true,
                                   .recomputes = true,
                                   .table = &vit_weight_table(),
                                   .init = init_vit},
                 std::make_shared<ViTBody>(ViTConfig(config)));
           }}};
}

// Those of transformers 5.22.
std::vector<ModelDefaults> vit_defaults() {
  return {{"vit", strict_json(R"({"hidden_size": 768, "num_hidden_layers": 12,
             "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu",
             "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
             "initializer_range": 0.02, "layer_norm_eps": 1e-12, "image_size": 224,
             "patch_size": 16, "num_channels": 3, "qkv_bias": true, "encoder_stride": 16,
             "pooler_act": "tanh"})")}};
}

}  // namespace gradus
