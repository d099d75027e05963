#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/formats/safetensors.h>
#include <gradus/models/image_classifier.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "core/mapped_reads.h"

namespace gradus {
namespace {

class SmallCnn : public Model {
 public:
  explicit SmallCnn(const ImageClassifierOptions& options) : options_(options) {
    const int64_t c = options.channels, side = options.image_size / 4;
    conv1_ = register_module(
        "conv1", torch::nn::Conv2d(
                     torch::nn::Conv2dOptions(options.num_channels, c, 3).padding(1).bias(false)));
    norm1_ = register_module("norm1", torch::nn::BatchNorm2d(c));
    conv2_ = register_module(
        "conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(c, 2 * c, 3).padding(1).bias(false)));
    norm2_ = register_module("norm2", torch::nn::BatchNorm2d(2 * c));
    hidden_ = register_module("hidden", torch::nn::Linear(2 * c * side * side, 128));
    dropout_ = register_module("dropout", torch::nn::Dropout(options.dropout));
    classifier_ = register_module("classifier", torch::nn::Linear(128, options.num_labels));
  }

  ModelOutput forward(const Batch& inputs, const ForwardOptions&) override {
    auto x =
        torch::max_pool2d(torch::relu(norm1_->forward(conv1_->forward(inputs["pixel_values"]))), 2);
    x = torch::max_pool2d(torch::relu(norm2_->forward(conv2_->forward(x))), 2);
    const auto logits =
        classifier_->forward(dropout_->forward(torch::relu(hidden_->forward(x.flatten(1)))));
    ModelOutput out;
    if (const auto* labels = inputs.find("labels"))
      out.set("loss", torch::cross_entropy_loss(logits.to(torch::kFloat), *labels));
    out.set("logits", logits);
    return out;
  }

  std::vector<std::string> input_names() const override { return {"pixel_values", "labels"}; }
  std::string main_input_name() const override { return "pixel_values"; }
  bool is_recordable() const override { return true; }
  bool takes_bf16_weights() const override { return true; }

  nlohmann::json config() const override {
    return {
        {"model_type", "small-cnn"},         {"architectures", {"SmallCnnForImageClassification"}},
        {"num_labels", options_.num_labels}, {"num_channels", options_.num_channels},
        {"image_size", options_.image_size}, {"channels", options_.channels},
        {"dropout", options_.dropout}};
  }

 private:
  ImageClassifierOptions options_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::BatchNorm2d norm1_{nullptr}, norm2_{nullptr};
  torch::nn::Linear hidden_{nullptr}, classifier_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_image_classifier(ImageClassifierOptions options) {
  const auto check = [](const char* name, int64_t value, int64_t least) {
    if (value < least)
      throw Error(
          "G-MODEL-20", ErrorKind::model,
          fmt::format("small-cnn: expected {} of at least {}, received {}", name, least, value),
          "Correct the config.");
  };
  check("num_labels", options.num_labels, 2);
  check("num_channels", options.num_channels, 1);
  check("image_size", options.image_size, 8);
  check("channels", options.channels, 1);
  return std::make_shared<SmallCnn>(options);
}

std::shared_ptr<Model> load_image_classifier(const std::filesystem::path& directory) {
  const auto config = read_json(directory / "config.json");
  const auto type =
      config.is_object() && config.contains("model_type") && config["model_type"].is_string()
          ? config["model_type"].get<std::string>()
          : "";
  if (type != "small-cnn")
    throw Error(
        "G-MODEL-21", ErrorKind::model,
        fmt::format("{} holds a model of type '{}': expected small-cnn", directory.string(), type),
        "Name a folder that image-classification wrote.");
  ImageClassifierOptions options;
  try {
    options = {.num_labels = config.value("num_labels", options.num_labels),
               .num_channels = config.value("num_channels", options.num_channels),
               .image_size = config.value("image_size", options.image_size),
               .channels = config.value("channels", options.channels),
               .dropout = config.value("dropout", options.dropout)};
  } catch (const nlohmann::json::exception& error) {
    throw Error("G-MODEL-21", ErrorKind::model,
                fmt::format("{}/config.json has a value of the wrong type: {}", directory.string(),
                            error.what()),
                "Correct the file.");
  }
  auto model = make_image_classifier(options);
  StateDict state;
  for (const auto& [name, tensor] : read_safetensors_folder(directory)) state.insert(name, tensor);
  read_mapped([&] { model->load_state_dict(state); });
  return model;
}

}  // namespace gradus
