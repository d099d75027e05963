#include <nlohmann/json.hpp>

#include "core/parsed_json.h"
#include "models/distilbert/distilbert.h"

namespace gradus {

// Those of transformers 5.22; lists that follow from other keys are left out.
std::vector<ModelDefaults> distilbert_defaults() {
  return {
      {"distilbert",
       strict_json(
           R"({"vocab_size": 30522, "max_position_embeddings": 512, "sinusoidal_pos_embds": false,
         "n_layers": 6, "n_heads": 12, "dim": 768, "hidden_dim": 3072, "dropout": 0.1,
         "attention_dropout": 0.1, "activation": "gelu", "initializer_range": 0.02,
         "qa_dropout": 0.1, "seq_classif_dropout": 0.2, "pad_token_id": 0, "eos_token_id": null,
         "bos_token_id": null, "tie_word_embeddings": true})"),
       {{"hidden_size", "dim"},
        {"num_attention_heads", "n_heads"},
        {"num_hidden_layers", "n_layers"}}}};
}

}  // namespace gradus
