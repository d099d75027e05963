#pragma once

#include <gradus/models/layers/linear.h>
#include <gradus/models/pretrained_model.h>

#include <memory>
#include <string>

namespace gradus {

/// What makes a vector of an image.
class ImageBody : public torch::nn::Module {
 public:
  /// From (batch, channels, height, width) to (batch, width of the head).
  virtual torch::Tensor forward(const torch::Tensor& pixels) = 0;
  /// The size of that vector.
  virtual int64_t features() const = 0;
  /// Channels of an image.
  virtual int64_t channels() const = 0;

  std::optional<GradientCheckpointing> gradient_checkpointing;
};

/// How the models differ around their bodies.
struct ImageModelOptions {
  std::string class_name;           ///< In transformers: "ViTForImageClassification".
  std::string prefix;               ///< Of the body: "vit".
  std::string head = "classifier";  ///< Path of the linear layer.
  bool accepts_loss_kwargs = true;  ///< Whether the loss may be divided by the trainer.
  bool divides_loss = false;        ///< Whether it is divided by `num_items_in_batch`.
  bool recomputes = false;          ///< Whether gradient checkpointing is supported.
  bool takes_bf16_weights = true;   ///< See `Model::takes_bf16_weights`.
  const WeightTable* table = nullptr;
  /// Initialises a module in the architecture's own way; false leaves it to the common rules.
  bool (*init)(torch::nn::Module&, const Initializer&, const nlohmann::json& config) = nullptr;
};

/// Sorts images into classes: a body and a linear layer. Takes `pixel_values` and `labels`, gives
/// `loss` and `logits`.
class ImageClassifierModel : public PreTrainedModel {
 public:
  ImageClassifierModel(nlohmann::json config, ImageModelOptions options,
                       std::shared_ptr<ImageBody> body);

  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  std::vector<std::string> input_names() const override { return {"pixel_values", "labels"}; }
  std::string main_input_name() const override { return "pixel_values"; }
  bool accepts_loss_kwargs() const override { return options_.accepts_loss_kwargs; }
  bool takes_bf16_weights() const override { return options_.takes_bf16_weights; }
  void gradient_checkpointing_enable(const GradientCheckpointing& how = {}) override;

 protected:
  void init_module(torch::nn::Module& module, const Initializer& initializer) const override;
  const WeightTable& weight_table() const override;

 private:
  ImageModelOptions options_;
  std::shared_ptr<ImageBody> body_;
  std::shared_ptr<layers::Linear> head_;
  std::optional<std::string> problem_type_;
};

/// Draws from normal(0, `deviation`) cut off at -2 and 2, as `torch.nn.init.trunc_normal_`.
void draw_truncated_normal(torch::Tensor tensor, double deviation, const Initializer& initializer);

}  // namespace gradus
