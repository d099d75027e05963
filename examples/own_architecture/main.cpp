// An architecture of one's own: trained, saved and loaded again by its model_type.
#include <gradus/gradus.h>

#include <iostream>

#include "word_mean.h"

int main() try {
  gradus::AutoModelForSequenceClassification::register_model(
      "word_mean", [](const nlohmann::json& config) { return std::make_shared<WordMean>(config); });
  torch::manual_seed(0);
  auto model = gradus::AutoModelForSequenceClassification::from_config(
      {{"model_type", "word_mean"}, {"vocab_size", 50}, {"num_labels", 2}});

  // Texts of class 1 have more words from the upper half of the vocabulary.
  const auto ids = torch::randint(1, 50, {512, 9}, torch::kLong);
  const auto labels = ids.ge(25).sum(1).gt(4).to(torch::kLong);
  const auto data = gradus::from_tensors({{"input_ids", ids}, {"labels", labels}});
  gradus::Trainer trainer({.model = model,
                           .args = {.output_dir = "runs/word_mean",
                                    .num_train_epochs = 20,
                                    .learning_rate = 0.05,
                                    .save_strategy = "no"},
                           .train_dataset = data});
  trainer.train();
  trainer.save_model();

  auto loaded = gradus::AutoModelForSequenceClassification::from_pretrained("runs/word_mean");
  const torch::NoGradGuard frozen;
  const auto guesses = loaded->forward({{"input_ids", ids}})["logits"].argmax(-1);
  const auto accuracy = guesses.eq(labels).to(torch::kDouble).mean().item<double>();
  std::cout << loaded->class_name() << ": accuracy " << accuracy << '\n';
  return accuracy > 0.9 ? 0 : 1;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
