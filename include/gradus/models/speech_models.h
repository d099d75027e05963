#pragma once

#include <gradus/models/layers/linear.h>
#include <gradus/models/pretrained_model.h>

#include <memory>
#include <string>
#include <vector>

namespace gradus {

class SpeechBody;

/// A model that reads sound: `input_values` (batch, samples), and an `attention_mask` of the same
/// shape where rows are padded. wav2vec 2.0 and HuBERT are such models.
///
/// Convolutions make about 50 frames of a second of sound; an encoder runs over the frames. In
/// training SpecAugment masks spans of them, drawn from `numpy_random()` as transformers does.
/// Thread-safety: as a torch module.
class SpeechModel : public PreTrainedModel {
 public:
  ~SpeechModel() override;
  /// "input_values".
  std::string main_input_name() const override { return "input_values"; }
  /// What forward reads: sound, mask and labels.
  std::vector<std::string> input_names() const override {
    return {"input_values", "attention_mask", "mask_time_indices", "labels"};
  }
  std::vector<std::string> droppable_masks() const override { return {"attention_mask"}; }
  /// False: SpecAugment and LayerDrop decide on the host what a step does.
  bool is_recordable() const override { return false; }
  /// False: convolutions over raw sound stay in float32, or run under autocast.
  bool takes_bf16_weights() const override { return false; }
  void gradient_checkpointing_enable(const GradientCheckpointing& how = {}) override;

  /// Keeps the convolutions over the sound as they are: their parameters need no gradient.
  void freeze_feature_encoder();
  /// Keeps everything but the head as it is.
  void freeze_base_model();
  /// Frames that the model makes of `samples`; 0 when there are too few.
  int64_t frames(int64_t samples) const;
  /// Samples that one frame stands for: the product of the strides.
  int64_t samples_per_frame() const;

 protected:
  /// Registers `body` under the family's name.
  SpeechModel(nlohmann::json config, const char* suffix, std::shared_ptr<SpeechBody> body);
  void init_module(torch::nn::Module& module, const Initializer& initializer) const override;
  const WeightTable& weight_table() const override;

  std::shared_ptr<SpeechBody> body_;  ///< Never null.
};

/// The body alone. Returns `last_hidden_state` and, of wav2vec 2.0, `extract_features`.
class SpeechBaseModel : public SpeechModel {
 public:
  /// Wraps `body`.
  SpeechBaseModel(nlohmann::json config, std::shared_ptr<SpeechBody> body);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  torch::nn::Module& named_module() override;
  /// None: there is no loss.
  std::vector<std::string> label_names() const override { return {}; }
};

/// Writes down speech: scores of characters for every frame, trained with the CTC loss.
///
/// `labels` are padded with -100. The blank is `pad_token_id` of the config. The loss is the sum
/// over rows or the mean (`ctc_loss_reduction`). A row with more labels than frames has an infinite
/// loss, or none with `ctc_zero_infinity`.
class SpeechForCTC : public SpeechModel {
 public:
  /// Builds the head on `body`. Parameters have no values yet.
  SpeechForCTC(nlohmann::json config, std::shared_ptr<SpeechBody> body);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;

 private:
  std::shared_ptr<layers::Linear> head_;
};

/// Labels a clip: the mean over its frames, then scores of classes.
class SpeechForSequenceClassification : public SpeechModel {
 public:
  /// Builds the head on `body`. Parameters have no values yet.
  SpeechForSequenceClassification(nlohmann::json config, std::shared_ptr<SpeechBody> body);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;

 protected:
  void init_module(torch::nn::Module& module, const Initializer& initializer) const override;

 private:
  torch::Tensor layer_weights_;  ///< Undefined without `use_weighted_layer_sum`.
  std::shared_ptr<layers::Linear> projector_, classifier_;
};

/// The pre-training of wav2vec 2.0: tells the quantized form of a masked frame from those of other
/// masked frames.
///
/// Reads `mask_time_indices` (batch, frames) and `sampled_negative_indices` (batch, frames,
/// negatives); `compute_mask_indices` and `sample_negative_indices` draw them. Returns `loss` (a
/// sum over masked frames) when there are negatives, `projected_states`,
/// `projected_quantized_states`, `codevector_perplexity`, `contrastive_loss`, `diversity_loss`.
class Wav2Vec2ForPreTraining : public SpeechModel {
 public:
  /// Builds quantizer and projections on `body`. Parameters have no values yet.
  Wav2Vec2ForPreTraining(nlohmann::json config, std::shared_ptr<SpeechBody> body);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  std::vector<std::string> input_names() const override {
    return {"input_values", "attention_mask", "mask_time_indices", "sampled_negative_indices"};
  }
  /// None: the negatives make the loss.
  std::vector<std::string> label_names() const override { return {}; }
  /// Sets the temperature of the quantizer's Gumbel softmax; it is 2 at first.
  void set_gumbel_temperature(double temperature) { temperature_ = temperature; }

 protected:
  void init_module(torch::nn::Module& module, const Initializer& initializer) const override;

 private:
  struct Quantized {
    torch::Tensor vectors, perplexity;
  };
  Quantized quantize(const torch::Tensor& features, const torch::Tensor& mask) const;

  double temperature_ = 2.0;
  torch::Tensor codevectors_;
  std::shared_ptr<layers::Linear> scores_, project_hidden_, project_quantized_;
};

}  // namespace gradus
