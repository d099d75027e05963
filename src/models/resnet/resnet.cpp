#include "models/resnet/resnet.h"
#include "core/parsed_json.h"

#include <gradus/models/config_reader.h>
#include <gradus/models/layers/activation.h>
#include <gradus/models/layers/module_list.h>
#include <gradus/models/layers/module_path.h>

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include <cmath>

#include "models/image/convolution.h"
#include "models/image/image_model.h"

namespace gradus {

using torch::Tensor;

namespace {

struct ResNetConfig {
  explicit ResNetConfig(const nlohmann::json& values) {
    const ConfigReader read(values);
    constexpr int64_t kWidest = 1 << 16;
    channels = read.integer("num_channels", 3, 1, 4096);
    stem = read.integer("embedding_size", 64, 1, kWidest);
    widths = sizes_in(read, "hidden_sizes", {256, 512, 1024, 2048}, kWidest);
    depths = sizes_in(read, "depths", {3, 4, 6, 3}, 10000);
    const auto layer = read.text("layer_type", "bottleneck");
    if (layer != "basic" && layer != "bottleneck")
      read.fail("layer_type", "basic or bottleneck", '"' + layer + '"');
    is_bottleneck = layer == "bottleneck";
    activation = layers::activation_named(read.text("hidden_act", "relu"));
    downsample_in_first_stage = read.flag("downsample_in_first_stage", false);
    downsample_in_bottleneck = read.flag("downsample_in_bottleneck", false);
    if (widths.size() != depths.size())
      read.fail("depths", "as many numbers as hidden_sizes", std::to_string(depths.size()));
    for (const auto width : widths)
      if (is_bottleneck && width < 4)
        read.fail("hidden_sizes", "at least 4 each", std::to_string(width));
  }

  int64_t channels, stem;
  std::vector<int64_t> widths, depths;
  bool is_bottleneck, downsample_in_first_stage, downsample_in_bottleneck;
  layers::Activation activation;
};

/// Convolution, norm and perhaps an activation.
class ResNetConvolution : public torch::nn::Module {
 public:
  ResNetConvolution(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                    layers::Activation activation)
      : activation_(activation) {
    convolution_ = register_module(
        "convolution",
        std::make_shared<layers::Convolution>(layers::ConvolutionOptions{.in = in,
                                                                         .out = out,
                                                                         .kernel = {kernel, kernel},
                                                                         .stride = {stride, stride},
                                                                         .padding = kernel / 2,
                                                                         .bias = false}));
    norm_ = register_module("normalization", std::make_shared<layers::BatchNorm>(out));
  }
  Tensor forward(const Tensor& x) const {
    const auto y = norm_->forward(convolution_->forward(x));
    return activation_ != nullptr ? activation_(y) : y;
  }

 private:
  layers::Activation activation_;
  std::shared_ptr<layers::Convolution> convolution_;
  std::shared_ptr<layers::BatchNorm> norm_;
};

/// Two or three convolutions beside a short cut.
class ResNetLayer : public torch::nn::Module {
 public:
  ResNetLayer(const ResNetConfig& config, int64_t in, int64_t out, int64_t stride)
      : activation_(config.activation) {
    if (in != out || stride != 1)
      shortcut_ = register_module("shortcut",
                                  std::make_shared<ResNetConvolution>(in, out, 1, stride, nullptr));
    layer_ = register_module("layer", std::make_shared<layers::ModuleList<ResNetConvolution>>());
    const auto relu = layers::activation_named("relu");
    const auto add = [&](int64_t from, int64_t to, int64_t kernel, int64_t step,
                         layers::Activation activation) {
      layer_->push_back(std::make_shared<ResNetConvolution>(from, to, kernel, step, activation));
    };
    if (config.is_bottleneck) {
      const auto narrow = out / 4;
      const bool early = config.downsample_in_bottleneck;
      add(in, narrow, 1, early ? stride : 1, relu);
      add(narrow, narrow, 3, early ? 1 : stride, relu);
      add(narrow, out, 1, 1, nullptr);
    } else {
      add(in, out, 3, stride, relu);
      add(out, out, 3, 1, nullptr);
    }
  }

  Tensor forward(const Tensor& x) const {
    auto y = x;
    for (const auto& part : *layer_) y = part->forward(y);
    return activation_(y + (shortcut_ != nullptr ? shortcut_->forward(x) : x));
  }

 private:
  layers::Activation activation_;
  std::shared_ptr<ResNetConvolution> shortcut_;
  std::shared_ptr<layers::ModuleList<ResNetConvolution>> layer_;
};

class ResNetBody : public ImageBody {
 public:
  explicit ResNetBody(const ResNetConfig& config)
      : width_(config.widths.back()), channels_(config.channels) {
    stem_ = layers::register_at(
        *this, "embedder.embedder",
        std::make_shared<ResNetConvolution>(config.channels, config.stem, 7, 2, config.activation));
    auto in = config.stem;
    for (size_t stage = 0; stage < config.widths.size(); ++stage) {
      auto list = layers::register_at(*this, "encoder.stages." + std::to_string(stage) + ".layers",
                                      std::make_shared<layers::ModuleList<ResNetLayer>>());
      for (int64_t i = 0; i < config.depths[stage]; ++i) {
        const bool halves = i == 0 && (stage > 0 || config.downsample_in_first_stage);
        list->push_back(
            std::make_shared<ResNetLayer>(config, in, config.widths[stage], halves ? 2 : 1));
        in = config.widths[stage];
      }
      stages_.push_back(std::move(list));
    }
  }

  int64_t features() const override { return width_; }
  int64_t channels() const override { return channels_; }

  Tensor forward(const Tensor& pixels) override {
    auto x = at::max_pool2d(stem_->forward(pixels), {3, 3}, {2, 2}, {1, 1});
    for (const auto& stage : stages_)
      for (const auto& layer : *stage) x = layer->forward(x);
    return at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
  }

 private:
  int64_t width_, channels_;
  std::shared_ptr<ResNetConvolution> stem_;
  std::vector<std::shared_ptr<layers::ModuleList<ResNetLayer>>> stages_;
};

/// Convolutions by their outputs (`kaiming_normal_`), the head by its inputs, as torch does it.
bool init_resnet(torch::nn::Module& module, const Initializer& initializer,
                 const nlohmann::json& /*config*/) {
  torch::NoGradGuard no_grad;
  if (const auto* convolution = dynamic_cast<layers::Convolution*>(&module)) {
    const auto& weight = convolution->weight;
    const double outputs = double(weight.size(0) * weight.size(2) * weight.size(3));
    initializer.normal(weight, std::sqrt(2.0 / outputs));
    return true;
  }
  if (const auto* linear = dynamic_cast<layers::Linear*>(&module)) {
    const double bound = 1.0 / std::sqrt(double(linear->weight.size(1)));
    if (initializer.wants(linear->weight)) linear->weight.uniform_(-bound, bound);
    if (initializer.wants(linear->bias)) linear->bias.uniform_(-bound, bound);
    return true;
  }
  return false;
}

}  // namespace

std::vector<BuiltinModel> resnet_models() {
  return {{"resnet", ModelTask::image_classification,
           [](const nlohmann::json& config) -> std::shared_ptr<PreTrainedModel> {
             return std::make_shared<ImageClassifierModel>(
                 config,
                 ImageModelOptions{.class_name = "ResNetForImageClassification",
                                   .prefix = "resnet",
                                   .head = "classifier.1",
                                   .takes_bf16_weights = false,
                                   .init = init_resnet},
                 std::make_shared<ResNetBody>(ResNetConfig(config)));
           }}};
}

// Those of transformers 5.22; lists that follow from other keys are left out.
std::vector<ModelDefaults> resnet_defaults() {
  return {{"resnet", strict_json(R"({"num_channels": 3, "embedding_size": 64,
             "hidden_sizes": [256, 512, 1024, 2048], "depths": [3, 4, 6, 3],
             "layer_type": "bottleneck", "hidden_act": "relu",
             "downsample_in_first_stage": false, "downsample_in_bottleneck": false})")}};
}

}  // namespace gradus
