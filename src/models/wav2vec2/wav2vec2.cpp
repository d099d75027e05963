#include "models/wav2vec2/wav2vec2.h"
#include "core/parsed_json.h"

#include <gradus/models/speech_models.h>

#include <nlohmann/json.hpp>

#include "models/wav2vec2/speech_body.h"

namespace gradus {
namespace {

constexpr SpeechFamily kWav2Vec2{"wav2vec2", "Wav2Vec2", true, false};

template <class Head>
BuiltinModel speech_model(const char* model_type, ModelTask task, const SpeechFamily& family) {
  return {model_type, task,
          [&family](const nlohmann::json& config) -> std::shared_ptr<PreTrainedModel> {
            return std::make_shared<Head>(
                config, std::make_shared<SpeechBody>(SpeechConfig(config, family)));
          }};
}

}  // namespace

std::vector<BuiltinModel> speech_models(const char* type, const SpeechFamily& family) {
  return {speech_model<SpeechBaseModel>(type, ModelTask::base, family),
          speech_model<SpeechForCTC>(type, ModelTask::ctc, family),
          speech_model<SpeechForSequenceClassification>(type, ModelTask::sequence_classification,
                                                        family)};
}

std::vector<BuiltinModel> wav2vec2_models() {
  auto models = speech_models("wav2vec2", kWav2Vec2);
  models.push_back(
      speech_model<Wav2Vec2ForPreTraining>("wav2vec2", ModelTask::audio_pretraining, kWav2Vec2));
  return models;
}

// Those of transformers 5.22.
std::vector<ModelDefaults> wav2vec2_defaults() {
  return {{"wav2vec2",
           strict_json(
               R"({"vocab_size": 32, "hidden_size": 768, "num_hidden_layers": 12,
         "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu",
         "hidden_dropout": 0.1, "activation_dropout": 0.1, "attention_dropout": 0.1,
         "feat_proj_dropout": 0.0, "feat_quantizer_dropout": 0.0, "final_dropout": 0.1,
         "layerdrop": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-05,
         "feat_extract_norm": "group", "feat_extract_activation": "gelu",
         "conv_dim": [512, 512, 512, 512, 512, 512, 512], "conv_stride": [5, 2, 2, 2, 2, 2, 2],
         "conv_kernel": [10, 3, 3, 3, 3, 2, 2], "conv_bias": false,
         "num_conv_pos_embeddings": 128, "num_conv_pos_embedding_groups": 16,
         "do_stable_layer_norm": false, "apply_spec_augment": true, "mask_time_prob": 0.05,
         "mask_time_length": 10, "mask_time_min_masks": 2, "mask_feature_prob": 0.0,
         "mask_feature_length": 10, "mask_feature_min_masks": 0,
         "num_codevectors_per_group": 320, "num_codevector_groups": 2,
         "contrastive_logits_temperature": 0.1, "num_negatives": 100, "codevector_dim": 256,
         "proj_codevector_dim": 256, "diversity_loss_weight": 0.1, "ctc_loss_reduction": "sum",
         "ctc_zero_infinity": false, "use_weighted_layer_sum": false,
         "classifier_proj_size": 256, "tdnn_dim": [512, 512, 512, 512, 1500],
         "tdnn_kernel": [5, 3, 3, 1, 1], "tdnn_dilation": [1, 2, 3, 1, 1],
         "xvector_output_dim": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "add_adapter": false, "adapter_kernel_size": 3, "adapter_stride": 2,
         "num_adapter_layers": 3, "adapter_attn_dim": null})"),
           {}}};
}

}  // namespace gradus
