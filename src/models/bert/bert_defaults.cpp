#include <nlohmann/json.hpp>

#include "core/parsed_json.h"
#include "models/bert/bert.h"

namespace gradus {

// Those of transformers 5.22; lists that follow from other keys are left out.
std::vector<ModelDefaults> bert_defaults() {
  return {
      {"bert", strict_json(R"({"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12,
         "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu",
         "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
         "max_position_embeddings": 512, "type_vocab_size": 2, "initializer_range": 0.02,
         "layer_norm_eps": 1e-12, "pad_token_id": 0, "use_cache": true, "classifier_dropout": null,
         "is_decoder": false, "add_cross_attention": false, "bos_token_id": null,
         "eos_token_id": null, "tie_word_embeddings": true})")},
      {"roberta", strict_json(R"({"vocab_size": 50265, "hidden_size": 768, "num_hidden_layers": 12,
         "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu",
         "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
         "max_position_embeddings": 512, "type_vocab_size": 2, "initializer_range": 0.02,
         "layer_norm_eps": 1e-12, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
         "use_cache": true, "classifier_dropout": null, "is_decoder": false,
         "add_cross_attention": false, "tie_word_embeddings": true})")}};
}

}  // namespace gradus
