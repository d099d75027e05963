#include "word_mean.h"

#include <gradus/models/config_reader.h>
#include <gradus/models/losses.h>

#include <nlohmann/json.hpp>

WordMean::WordMean(nlohmann::json config)
    : PreTrainedModel(std::move(config), "WordMeanForSequenceClassification", "") {
  const gradus::ConfigReader read(config_);
  const auto width = read.integer("hidden_size", 32);
  pad_ = read.integer("pad_token_id", 0, /*at_least=*/0);
  words_ = register_module("words", std::make_shared<gradus::layers::Embedding>(
                                        read.integer("vocab_size", std::nullopt), width, pad_));
  score_ = register_module(
      "score", std::make_shared<gradus::layers::Linear>(width, gradus::num_labels(config_)));
}

gradus::ModelOutput WordMean::forward(const gradus::Batch& inputs,
                                      const gradus::ForwardOptions& options) {
  const auto ids = inputs["input_ids"];
  const auto counts = ids.ne(pad_).sum(1, /*keepdim=*/true).clamp_min(1);
  const auto logits = score_->forward(words_->forward(ids).sum(1) / counts);  // padding is zero
  gradus::ModelOutput output{{"logits", logits}};
  if (const auto* labels = inputs.find("labels"))
    output.set("loss", gradus::sequence_classification_loss(logits, *labels, std::nullopt,
                                                            options.num_items_in_batch));
  return output;
}
