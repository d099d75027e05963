#include <gradus/core/error.h>
#include <gradus/models/layers/module_path.h>
#include <gradus/models/speech_models.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/xlogy.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>

#include "models/wav2vec2/speech_body.h"

namespace gradus {

using torch::Tensor;

namespace {

/// One code for each row, drawn with Gumbel noise; the gradient is that of the soft choice.
Tensor gumbel_choice(const Tensor& scores, double temperature) {
  const auto noise = -at::empty_like(scores).exponential_().log();
  const auto soft = ((scores + noise) / temperature).softmax(-1);
  const auto best = std::get<1>(soft.max(-1, /*keepdim=*/true));
  const auto hard = at::zeros_like(scores).scatter_(-1, best, 1.0);
  return hard - soft.detach() + soft;
}

/// How many codes are in use: exp of the entropy of the mean choice, summed over the groups.
Tensor perplexity_of(Tensor choice, const Tensor& mask) {
  Tensor mean;
  if (mask.defined())
    mean = at::where(mask.flatten().view({-1, 1, 1}), choice, at::zeros_like(choice)).sum(0) /
           mask.sum();
  else
    mean = choice.mean(0);
  return (-at::xlogy(mean, mean).sum(-1)).exp().sum();
}

}  // namespace

Wav2Vec2ForPreTraining::Wav2Vec2ForPreTraining(nlohmann::json config,
                                               std::shared_ptr<SpeechBody> body)
    : SpeechModel(std::move(config), "ForPreTraining", std::move(body)) {
  const auto& sizes = body_->config;
  if (sizes.codevector_dim % sizes.codevector_groups != 0)
    throw Error("G-MODEL-5", ErrorKind::model,
                "config.json: codevector_dim must be a multiple of num_codevector_groups (" +
                    std::to_string(sizes.codevector_groups) + "), received " +
                    std::to_string(sizes.codevector_dim),
                "Correct the value in the model's config.json.");
  const auto codes = sizes.codevector_groups * sizes.codevectors;
  codevectors_ =
      layers::module_at(*this, "quantizer")
          .register_parameter(
              "codevectors", at::empty({1, codes, sizes.codevector_dim / sizes.codevector_groups}));
  scores_ = layers::register_at(*this, "quantizer.weight_proj",
                                std::make_shared<layers::Linear>(sizes.conv_dim.back(), codes));
  project_hidden_ = register_module(
      "project_hid", std::make_shared<layers::Linear>(sizes.width, sizes.projected_dim));
  project_quantized_ = register_module(
      "project_q", std::make_shared<layers::Linear>(sizes.codevector_dim, sizes.projected_dim));
}

void Wav2Vec2ForPreTraining::init_module(torch::nn::Module& module,
                                         const Initializer& initializer) const {
  SpeechModel::init_module(module, initializer);
  if (&module != this) return;
  torch::NoGradGuard no_grad;
  const auto uniform = [&](const Tensor& tensor, double low, double high) {
    if (initializer.wants(tensor)) tensor.uniform_(low, high);
  };
  initializer.normal(scores_->weight, 1.0);
  uniform(codevectors_, 0.0, 1.0);
  for (const auto& linear : {project_hidden_, project_quantized_}) {
    const auto bound = 1.0 / std::sqrt(static_cast<double>(linear->weight.size(1)));
    uniform(linear->weight, -bound, bound);
    uniform(linear->bias, -bound, bound);
  }
}

Wav2Vec2ForPreTraining::Quantized Wav2Vec2ForPreTraining::quantize(const Tensor& features,
                                                                   const Tensor& mask) const {
  const auto& sizes = body_->config;
  const auto rows = features.size(0), frames = features.size(1);
  const auto groups = sizes.codevector_groups;
  const auto scores = scores_->forward(features).view({rows * frames * groups, -1});
  Tensor choice, weighed;
  if (is_training()) {
    choice = gumbel_choice(scores.to(torch::kFloat), temperature_).type_as(scores);
    weighed = scores.view({rows * frames, groups, -1}).softmax(-1, torch::kFloat);
  } else {
    choice = at::zeros_like(scores).scatter_(-1, scores.argmax(-1).view({-1, 1}), 1.0);
    weighed = choice.view({rows * frames, groups, -1});
  }
  const auto perplexity = perplexity_of(weighed, mask);
  const auto vectors = (choice.view({rows * frames, -1}).unsqueeze(-1) * codevectors_)
                           .view({rows * frames, groups, sizes.codevectors, -1})
                           .sum(-2)
                           .view({rows, frames, -1});
  return {vectors, perplexity};
}

ModelOutput Wav2Vec2ForPreTraining::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto& sizes = body_->config;
  const auto* given = inputs.find("mask_time_indices");
  const auto mask = given != nullptr ? given->to(torch::kBool) : Tensor();
  const auto body = body_->forward(inputs, options);
  const auto predicted = project_hidden_->forward(body.last_hidden_state);
  const auto features =
      layers::dropout(body.extract_features, sizes.quantizer_dropout, is_training());
  const auto [vectors, perplexity] = quantize(features, mask);
  const auto quantized =
      project_quantized_->forward(vectors.to(project_quantized_->weight.scalar_type()));

  ModelOutput output;
  const auto* negatives = inputs.find("sampled_negative_indices");
  Tensor contrastive, diversity;
  if (negatives != nullptr) {
    if (!mask.defined())
      throw Error("G-MODEL-11", ErrorKind::model,
                  "the batch has sampled_negative_indices but no mask_time_indices",
                  "Give both; DataCollatorForWav2Vec2Pretraining draws them.");
    const auto rows = quantized.size(0), frames = quantized.size(1), width = quantized.size(2);
    const auto others = quantized.reshape({-1, width})
                            .index_select(0, negatives->to(torch::kLong).flatten())
                            .view({rows, frames, -1, width})
                            .permute({2, 0, 1, 3});
    const auto targets = at::cat({quantized.unsqueeze(0), others}, 0);
    auto logits = at::cosine_similarity(predicted.to(torch::kFloat), targets.to(torch::kFloat), -1)
                      .type_as(targets) /
                  sizes.contrastive_temperature;
    // A negative that has the code of the frame itself does not count.
    const auto same = quantized.eq(others).all(-1);
    const auto none = at::zeros_like(same.narrow(0, 0, 1));
    logits = logits.masked_fill(at::cat({none, same}, 0), -std::numeric_limits<double>::infinity());
    logits = logits.transpose(0, 2).reshape({-1, logits.size(0)});
    const auto labels = ((1 - mask.to(torch::kLong)) * -100).transpose(0, 1).flatten();
    contrastive = at::cross_entropy_loss(logits.to(torch::kFloat), labels, {}, at::Reduction::Sum);
    const auto codes = static_cast<double>(sizes.codevectors * sizes.codevector_groups);
    diversity = (codes - perplexity) / codes * mask.sum();
    output.set("loss", contrastive + sizes.diversity_weight * diversity);
  }
  output.set("projected_states", predicted);
  output.set("projected_quantized_states", quantized);
  output.set("codevector_perplexity", perplexity);
  for (size_t i = 0; i < body.hidden_states.size(); ++i)
    output.set("hidden_states." + std::to_string(i), body.hidden_states[i]);
  for (size_t i = 0; i < body.attentions.size(); ++i)
    output.set("attentions." + std::to_string(i), body.attentions[i]);
  if (contrastive.defined()) {
    output.set("contrastive_loss", contrastive);
    output.set("diversity_loss", diversity);
  }
  return output;
}

}  // namespace gradus
