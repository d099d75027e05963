#include <nlohmann/json.hpp>

#include "core/parsed_json.h"
#include "models/llama/llama.h"

namespace gradus {

// Those of transformers 5.22; lists that follow from other keys are left out.
std::vector<ModelDefaults> llama_defaults() {
  return {{"llama", strict_json(
                        R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
         "hidden_act": "silu", "max_position_embeddings": 2048, "initializer_range": 0.02,
         "rms_norm_eps": 1e-06, "use_cache": true, "pad_token_id": null, "bos_token_id": 1,
         "eos_token_id": 2, "pretraining_tp": 1, "tie_word_embeddings": false,
         "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
         "attention_bias": false, "attention_dropout": 0.0, "mlp_bias": false, "head_dim": 128})")},
          {"mistral", strict_json(
                          R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 131072,
         "initializer_range": 0.02, "rms_norm_eps": 1e-06, "use_cache": true, "pad_token_id": null,
         "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": false,
         "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "sliding_window": 4096,
         "attention_dropout": 0.0})")},
          {"qwen2", strict_json(
                        R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
         "hidden_act": "silu", "max_position_embeddings": 32768, "initializer_range": 0.02,
         "rms_norm_eps": 1e-06, "use_cache": true, "tie_word_embeddings": false,
         "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
         "use_sliding_window": false, "sliding_window": null, "max_window_layers": 28,
         "attention_dropout": 0.0, "pad_token_id": null, "bos_token_id": null,
         "eos_token_id": null})")},
          {"qwen3", strict_json(
                        R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
         "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 32768,
         "initializer_range": 0.02, "rms_norm_eps": 1e-06, "use_cache": true,
         "tie_word_embeddings": false, "rope_parameters": {"rope_theta": 10000.0,
         "rope_type": "default"}, "attention_bias": false, "use_sliding_window": false,
         "sliding_window": null, "max_window_layers": 28, "attention_dropout": 0.0,
         "pad_token_id": null, "bos_token_id": null, "eos_token_id": null})")}};
}

}  // namespace gradus
