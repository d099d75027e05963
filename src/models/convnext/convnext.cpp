#include "models/convnext/convnext.h"
#include "core/parsed_json.h"

#include <gradus/models/config_reader.h>
#include <gradus/models/layers/activation.h>
#include <gradus/models/layers/module_list.h>
#include <gradus/models/layers/module_path.h>
#include <torch/nn/modules/normalization.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/rand.h>

#include <numeric>

#include "models/image/convolution.h"
#include "models/image/image_model.h"

namespace gradus {

using torch::Tensor;

namespace {

struct ConvNextConfig {
  explicit ConvNextConfig(const nlohmann::json& values) {
    const ConfigReader read(values);
    constexpr int64_t kWidest = 1 << 16;
    channels = read.integer("num_channels", 3, 1, 4096);
    patch = pair_in(read, "patch_size", 4);
    widths = sizes_in(read, "hidden_sizes", {96, 192, 384, 768}, kWidest);
    depths = sizes_in(read, "depths", {3, 3, 9, 3}, 10000);
    const auto stages = read.integer("num_stages", 4, 1, 64);
    activation = layers::activation_named(read.text("hidden_act", "gelu"));
    norm_eps = read.number("layer_norm_eps", 1e-12, 0.0);
    scale = read.number("layer_scale_init_value", 1e-6);
    drop_path = read.probability("drop_path_rate", 0.0);
    if (int64_t(widths.size()) != stages || depths.size() != widths.size())
      read.fail("num_stages", "as many as hidden_sizes and depths", std::to_string(stages));
  }

  int64_t channels;
  std::array<int64_t, 2> patch;
  std::vector<int64_t> widths, depths;
  layers::Activation activation;
  double norm_eps, scale, drop_path;
};

constexpr double kInnerEps = 1e-6;  // of all norms but the last, whatever the config says

std::shared_ptr<torch::nn::LayerNormImpl> convnext_norm(int64_t width, double eps) {
  return std::make_shared<torch::nn::LayerNormImpl>(torch::nn::LayerNormOptions({width}).eps(eps));
}

/// A norm over the channels of (batch, channels, height, width).
Tensor over_channels(torch::nn::LayerNormImpl& norm, const Tensor& x) {
  return norm.forward(x.permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
}

/// A wide convolution for each channel alone, then an MLP for each place.
class ConvNextLayer : public torch::nn::Module {
 public:
  ConvNextLayer(const ConvNextConfig& config, int64_t width, double drop_path)
      : activation_(config.activation), drop_path_(drop_path) {
    if (config.scale > 0)
      scale = register_parameter("layer_scale_parameter", at::empty({width}, at::kFloat));
    depthwise_ = register_module(
        "dwconv", std::make_shared<layers::Convolution>(layers::ConvolutionOptions{
                      .in = width, .out = width, .kernel = {7, 7}, .padding = 3, .groups = width}));
    norm_ = register_module("layernorm", convnext_norm(width, kInnerEps));
    inner_ = register_module("pwconv1", std::make_shared<layers::Linear>(width, 4 * width));
    outer_ = register_module("pwconv2", std::make_shared<layers::Linear>(4 * width, width));
  }

  Tensor forward(const Tensor& x) const {
    const auto places = norm_->forward(depthwise_->forward(x).permute({0, 2, 3, 1}));
    auto y = outer_->forward(activation_(inner_->forward(places)));
    if (scale.defined()) y = scale * y;
    return x + dropped(y.permute({0, 3, 1, 2}));
  }

  Tensor scale;  ///< (width); undefined when the config has none.

 private:
  /// Leaves out the whole branch of some images.
  Tensor dropped(const Tensor& y) const {
    if (drop_path_ == 0.0 || !is_training()) return y;
    const double kept = 1.0 - drop_path_;
    return y.div(kept) * at::rand({y.size(0), 1, 1, 1}, y.options()).add_(kept).floor_();
  }

  layers::Activation activation_;
  double drop_path_;
  std::shared_ptr<layers::Convolution> depthwise_;
  std::shared_ptr<torch::nn::LayerNormImpl> norm_;
  std::shared_ptr<layers::Linear> inner_, outer_;
};

class ConvNextBody : public ImageBody {
 public:
  explicit ConvNextBody(const ConvNextConfig& config)
      : width_(config.widths.back()), channels_(config.channels) {
    patches_ = layers::register_at(*this, "embeddings.patch_embeddings",
                                   std::make_shared<layers::Convolution>(
                                       layers::ConvolutionOptions{.in = config.channels,
                                                                  .out = config.widths.front(),
                                                                  .kernel = config.patch,
                                                                  .stride = config.patch}));
    patch_norm_ = layers::register_at(*this, "embeddings.layernorm",
                                      convnext_norm(config.widths.front(), kInnerEps));
    const auto layers = std::accumulate(config.depths.begin(), config.depths.end(), int64_t{0});
    const auto rates = at::linspace(0, config.drop_path, layers, at::kFloat);
    int64_t number = 0;
    for (size_t stage = 0; stage < config.widths.size(); ++stage) {
      stages_.push_back(make_stage(config, stage, rates, number));
      number += config.depths[stage];
    }
    norm_ = register_module("layernorm", convnext_norm(width_, config.norm_eps));
  }

  int64_t features() const override { return width_; }
  int64_t channels() const override { return channels_; }

  Tensor forward(const Tensor& pixels) override {
    auto x = over_channels(*patch_norm_, patches_->forward(pixels));
    for (const auto& stage : stages_) {
      if (stage.halve != nullptr) x = stage.halve->forward(over_channels(*stage.norm, x));
      for (const auto& layer : *stage.layers) x = layer->forward(x);
    }
    return norm_->forward(x.mean({-2, -1}));
  }

 private:
  struct Stage {
    std::shared_ptr<torch::nn::LayerNormImpl> norm;  ///< Null in the first stage, as `halve`.
    std::shared_ptr<layers::Convolution> halve;
    std::shared_ptr<layers::ModuleList<ConvNextLayer>> layers;
  };

  Stage make_stage(const ConvNextConfig& config, size_t stage, const Tensor& rates, int64_t first) {
    const auto path = "encoder.stages." + std::to_string(stage);
    const auto width = config.widths[stage];
    Stage made;
    if (stage > 0) {
      const auto before = config.widths[stage - 1];
      made.norm = layers::register_at(*this, path + ".downsampling_layer.0",
                                      convnext_norm(before, kInnerEps));
      made.halve =
          layers::register_at(*this, path + ".downsampling_layer.1",
                              std::make_shared<layers::Convolution>(layers::ConvolutionOptions{
                                  .in = before, .out = width, .kernel = {2, 2}, .stride = {2, 2}}));
    }
    made.layers = layers::register_at(*this, path + ".layers",
                                      std::make_shared<layers::ModuleList<ConvNextLayer>>());
    for (int64_t i = 0; i < config.depths[stage]; ++i)
      made.layers->push_back(
          std::make_shared<ConvNextLayer>(config, width, rates[first + i].item<double>()));
    return made;
  }

  int64_t width_, channels_;
  std::shared_ptr<layers::Convolution> patches_;
  std::shared_ptr<torch::nn::LayerNormImpl> patch_norm_, norm_;
  std::vector<Stage> stages_;
};

bool init_convnext(torch::nn::Module& module, const Initializer& initializer,
                   const nlohmann::json& config) {
  const auto* layer = dynamic_cast<ConvNextLayer*>(&module);
  if (layer == nullptr) return false;
  initializer.constant(layer->scale, ConfigReader(config).number("layer_scale_init_value", 1e-6));
  return true;
}

}  // namespace

std::vector<BuiltinModel> convnext_models() {
  return {{"convnext", ModelTask::image_classification,
           [](const nlohmann::json& config) -> std::shared_ptr<PreTrainedModel> {
             return std::make_shared<ImageClassifierModel>(
                 config,
                 ImageModelOptions{.class_name = "ConvNextForImageClassification",
                                   .prefix = "convnext",
                                   .accepts_loss_kwargs = false,
                                   .init = init_convnext},
                 std::make_shared<ConvNextBody>(ConvNextConfig(config)));
           }}};
}

// Those of transformers 5.22; lists that follow from other keys are left out.
std::vector<ModelDefaults> convnext_defaults() {
  return {{"convnext", strict_json(R"({"num_channels": 3, "patch_size": 4, "num_stages": 4,
             "hidden_sizes": [96, 192, 384, 768], "depths": [3, 3, 9, 3], "hidden_act": "gelu",
             "initializer_range": 0.02, "layer_norm_eps": 1e-12, "layer_scale_init_value": 1e-6,
             "drop_path_rate": 0.0, "image_size": 224})")}};
}

}  // namespace gradus
