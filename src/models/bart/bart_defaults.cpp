#include <nlohmann/json.hpp>

#include "core/parsed_json.h"
#include "models/bart/bart.h"

namespace gradus {

// Those of transformers 5.22; the labels follow from num_labels.
std::vector<ModelDefaults> bart_defaults() {
  const auto config = strict_json(
      R"({"vocab_size": 50265, "max_position_embeddings": 1024, "encoder_layers": 12,
      "encoder_ffn_dim": 4096, "encoder_attention_heads": 16, "decoder_layers": 12,
      "decoder_ffn_dim": 4096, "decoder_attention_heads": 16, "encoder_layerdrop": 0.0,
      "decoder_layerdrop": 0.0, "activation_function": "gelu", "d_model": 1024, "dropout": 0.1,
      "attention_dropout": 0.0, "activation_dropout": 0.0, "init_std": 0.02,
      "classifier_dropout": 0.0, "scale_embedding": false, "use_cache": true, "pad_token_id": 1,
      "bos_token_id": 0, "eos_token_id": 2, "is_encoder_decoder": true,
      "decoder_start_token_id": 2, "forced_eos_token_id": 2, "is_decoder": false,
      "tie_word_embeddings": true})");
  auto multilingual = config;
  multilingual["decoder_start_token_id"] = nullptr;
  const std::map<std::string, std::string> aliases = {
      {"hidden_size", "d_model"},
      {"num_attention_heads", "encoder_attention_heads"},
      {"num_hidden_layers", "encoder_layers"}};
  return {{"bart", config, aliases}, {"mbart", multilingual, aliases}};
}

}  // namespace gradus
