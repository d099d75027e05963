#include "models/image/image_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/layers/module_path.h>
#include <gradus/models/losses.h>

#include <cmath>
#include <numbers>

#include "models/image/convolution.h"

namespace gradus {

using torch::Tensor;

ImageClassifierModel::ImageClassifierModel(nlohmann::json config, ImageModelOptions options,
                                           std::shared_ptr<ImageBody> body)
    : PreTrainedModel(std::move(config), options.class_name, options.prefix),
      options_(std::move(options)) {
  body_ = register_module(options_.prefix, std::move(body));
  head_ =
      layers::register_at(*this, options_.head,
                          std::make_shared<layers::Linear>(body_->features(), num_labels(config_)));
  problem_type_ = problem_type_in(config_);
}

ModelOutput ImageClassifierModel::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto& given = inputs["pixel_values"];
  if (given.dim() != 4 || given.size(1) != body_->channels() || given.numel() == 0)
    throw Error("G-MODEL-32", ErrorKind::model,
                fmt::format("{}: pixel_values has shape [{}], expected [batch, {}, height, width]",
                            class_name(), fmt::join(given.sizes(), ", "), body_->channels()),
                "Check the images, and num_channels in config.json.");
  const auto logits = head_->forward(body_->forward(given.to(head_->weight.scalar_type())));
  ModelOutput output;
  if (const auto* labels = inputs.find("labels")) {
    if (!problem_type_)
      problem_type_ = config_["problem_type"] = problem_type_of(logits.size(-1), *labels);
    output.set("loss", sequence_classification_loss(
                           logits, *labels, problem_type_,
                           options_.divides_loss ? options.num_items_in_batch : std::nullopt));
  }
  output.set("logits", logits);
  return output;
}

void ImageClassifierModel::gradient_checkpointing_enable(const GradientCheckpointing& how) {
  if (!options_.recomputes) return PreTrainedModel::gradient_checkpointing_enable(how);
  body_->gradient_checkpointing = how;
}

void ImageClassifierModel::init_module(torch::nn::Module& module,
                                       const Initializer& initializer) const {
  if (options_.init != nullptr && options_.init(module, initializer, config_)) return;
  if (const auto* convolution = dynamic_cast<layers::Convolution*>(&module)) {
    initializer.normal(convolution->weight, initializer_range());
    initializer.constant(convolution->bias, 0.0);
  } else if (const auto* norm = dynamic_cast<layers::BatchNorm*>(&module)) {
    initializer.constant(norm->weight, 1.0);
    initializer.constant(norm->bias, 0.0);
    initializer.constant(norm->running_mean, 0.0);
    initializer.constant(norm->running_var, 1.0);
    initializer.constant(norm->num_batches_tracked, 0.0);
  } else {
    PreTrainedModel::init_module(module, initializer);
  }
}

const WeightTable& ImageClassifierModel::weight_table() const {
  return options_.table != nullptr ? *options_.table : PreTrainedModel::weight_table();
}

void draw_truncated_normal(Tensor tensor, double deviation, const Initializer& initializer) {
  if (!initializer.wants(tensor)) return;
  torch::NoGradGuard no_grad;
  const auto below = [&](double x) { return (1.0 + std::erf(x / std::numbers::sqrt2)) / 2.0; };
  const double low = below(-2.0 / deviation), high = below(2.0 / deviation);
  tensor.uniform_(2 * low - 1, 2 * high - 1)
      .erfinv_()
      .mul_(deviation * std::numbers::sqrt2)
      .clamp_(-2.0, 2.0);
}

}  // namespace gradus
