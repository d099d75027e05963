#pragma once

#include <gradus/models/auto_model.h>
#include <gradus/models/layers/linear.h>

/// Classifies a text by the mean of its word vectors.
class WordMean : public gradus::PreTrainedModel {
 public:
  /// Reads `vocab_size`, `hidden_size`, `pad_token_id` and `num_labels` of a config.json.
  explicit WordMean(nlohmann::json config);

  gradus::ModelOutput forward(const gradus::Batch& inputs,
                              const gradus::ForwardOptions& options = {}) override;
  std::vector<std::string> input_names() const override { return {"input_ids", "labels"}; }
  torch::nn::Module* input_embedding_module() override { return words_.get(); }

 private:
  int64_t pad_;
  std::shared_ptr<gradus::layers::Embedding> words_;
  std::shared_ptr<gradus::layers::Linear> score_;
};
