#include "models/hubert/hubert.h"
#include "core/parsed_json.h"

#include <nlohmann/json.hpp>

#include "models/wav2vec2/speech_config.h"
#include "models/wav2vec2/wav2vec2.h"

namespace gradus {
namespace {

constexpr SpeechFamily kHubert{"hubert", "Hubert", false, true};

}  // namespace

std::vector<BuiltinModel> hubert_models() { return speech_models("hubert", kHubert); }

// Those of transformers 5.22.
std::vector<ModelDefaults> hubert_defaults() {
  return {{"hubert",
           strict_json(
               R"({"vocab_size": 32, "hidden_size": 768, "num_hidden_layers": 12,
         "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu",
         "hidden_dropout": 0.1, "activation_dropout": 0.1, "attention_dropout": 0.1,
         "feat_proj_layer_norm": true, "feat_proj_dropout": 0.0, "final_dropout": 0.1,
         "layerdrop": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-05,
         "feat_extract_norm": "group", "feat_extract_activation": "gelu",
         "conv_dim": [512, 512, 512, 512, 512, 512, 512], "conv_stride": [5, 2, 2, 2, 2, 2, 2],
         "conv_kernel": [10, 3, 3, 3, 3, 2, 2], "conv_bias": false,
         "num_conv_pos_embeddings": 128, "num_conv_pos_embedding_groups": 16,
         "conv_pos_batch_norm": false, "do_stable_layer_norm": false,
         "apply_spec_augment": true, "mask_time_prob": 0.05, "mask_time_length": 10,
         "mask_time_min_masks": 2, "mask_feature_prob": 0.0, "mask_feature_length": 10,
         "mask_feature_min_masks": 0, "ctc_loss_reduction": "sum", "ctc_zero_infinity": false,
         "use_weighted_layer_sum": false, "classifier_proj_size": 256, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2})"),
           {}}};
}

}  // namespace gradus
