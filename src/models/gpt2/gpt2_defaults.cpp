#include <nlohmann/json.hpp>

#include "core/parsed_json.h"
#include "models/gpt2/gpt2.h"

namespace gradus {

// Those of transformers 5.22; lists that follow from other keys are left out.
std::vector<ModelDefaults> gpt2_defaults() {
  return {
      {"gpt2",
       strict_json(
           R"({"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
         "n_inner": null, "activation_function": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1,
         "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02,
         "summary_type": "cls_index", "summary_use_proj": true, "summary_activation": null,
         "summary_proj_to_labels": true, "summary_first_dropout": 0.1, "scale_attn_weights": true,
         "use_cache": true, "bos_token_id": 50256, "eos_token_id": 50256, "pad_token_id": null,
         "scale_attn_by_inverse_layer_idx": false, "reorder_and_upcast_attn": false,
         "add_cross_attention": false, "tie_word_embeddings": true})"),
       {{"hidden_size", "n_embd"},
        {"max_position_embeddings", "n_positions"},
        {"num_attention_heads", "n_head"},
        {"num_hidden_layers", "n_layer"}}}};
}

}  // namespace gradus
