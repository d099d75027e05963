#include <nlohmann/json.hpp>

#include "core/parsed_json.h"
#include "models/t5/t5.h"

namespace gradus {

// Those of transformers 5.22; lists that follow from other keys are left out.
std::vector<ModelDefaults> t5_defaults() {
  return {{"t5",
           strict_json(
               R"({"vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6,
         "num_decoder_layers": 6, "num_heads": 8, "relative_attention_num_buckets": 32,
         "relative_attention_max_distance": 128, "dropout_rate": 0.1, "layer_norm_epsilon": 1e-06,
         "initializer_factor": 1.0, "feed_forward_proj": "relu", "use_cache": true,
         "pad_token_id": 0, "eos_token_id": 1, "classifier_dropout": 0.0, "is_decoder": false,
         "scale_decoder_outputs": true, "tie_word_embeddings": true})"),
           {{"hidden_size", "d_model"},
            {"num_attention_heads", "num_heads"},
            {"num_hidden_layers", "num_layers"},
            {"head_dim", "d_kv"}}}};
}

}  // namespace gradus
