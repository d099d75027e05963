#pragma once

#include <gradus/models/pretrained_model.h>

namespace gradus {

/// Always gives the same logits, whatever came before: what is drawn can be counted.
class FixedModel : public PreTrainedModel {
 public:
  explicit FixedModel(torch::Tensor logits)
      : PreTrainedModel({{"model_type", "fixed"}}, "FixedModel", ""), logits_(std::move(logits)) {
    register_parameter("unused", torch::zeros({1}));
  }
  ModelOutput forward(const Batch&, const ForwardOptions&) override { return {}; }
  bool can_generate() const override { return true; }
  torch::Tensor decode(const Batch& inputs, layers::KeyValueCache& cache) override {
    const auto& ids = inputs["input_ids"];
    cache.update(0, torch::zeros({ids.size(0), 1, ids.size(1), 1}),
                 torch::zeros({ids.size(0), 1, ids.size(1), 1}));
    return logits_.expand({ids.size(0), -1});
  }

 private:
  torch::Tensor logits_;
};

}  // namespace gradus
