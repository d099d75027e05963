#include <nlohmann/json.hpp>

#include "core/parsed_json.h"
#include "models/bigbird/bigbird.h"

namespace gradus {

// Those of transformers 5.22; lists that follow from other keys are left out.
std::vector<ModelDefaults> bigbird_defaults() {
  return {
      {"big_bird", strict_json(R"({"vocab_size": 50358, "hidden_size": 768, "num_hidden_layers": 12,
         "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu_new",
         "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
         "max_position_embeddings": 4096, "type_vocab_size": 2, "initializer_range": 0.02,
         "layer_norm_eps": 1e-12, "use_cache": true, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": 2, "sep_token_id": 66, "attention_type": "block_sparse",
         "use_bias": true, "rescale_embeddings": false, "block_size": 64,
         "num_random_blocks": 3, "classifier_dropout": null, "is_decoder": false,
         "add_cross_attention": false, "tie_word_embeddings": true})")},
  };
}

}  // namespace gradus
