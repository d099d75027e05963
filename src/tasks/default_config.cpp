#include "tasks/default_config.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/nearest.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace gradus::tasks {
namespace {

struct Defaults {
  const char* model_type;
  const char* config;
};

// transformers 5.22; lists that follow from other keys are left out.
constexpr Defaults kDefaults[] = {
    {"bert",
     R"({"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12,
         "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu",
         "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
         "max_position_embeddings": 512, "type_vocab_size": 2, "initializer_range": 0.02,
         "layer_norm_eps": 1e-12, "pad_token_id": 0, "use_cache": true, "classifier_dropout": null,
         "is_decoder": false, "add_cross_attention": false, "bos_token_id": null,
         "eos_token_id": null, "tie_word_embeddings": true})"},
    {"distilbert",
     R"({"vocab_size": 30522, "max_position_embeddings": 512, "sinusoidal_pos_embds": false,
         "n_layers": 6, "n_heads": 12, "dim": 768, "hidden_dim": 3072, "dropout": 0.1,
         "attention_dropout": 0.1, "activation": "gelu", "initializer_range": 0.02,
         "qa_dropout": 0.1, "seq_classif_dropout": 0.2, "pad_token_id": 0, "eos_token_id": null,
         "bos_token_id": null, "tie_word_embeddings": true})"},
    {"gpt2",
     R"({"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
         "n_inner": null, "activation_function": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1,
         "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02,
         "summary_type": "cls_index", "summary_use_proj": true, "summary_activation": null,
         "summary_proj_to_labels": true, "summary_first_dropout": 0.1, "scale_attn_weights": true,
         "use_cache": true, "bos_token_id": 50256, "eos_token_id": 50256, "pad_token_id": null,
         "scale_attn_by_inverse_layer_idx": false, "reorder_and_upcast_attn": false,
         "add_cross_attention": false, "tie_word_embeddings": true})"},
    {"llama",
     R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
         "hidden_act": "silu", "max_position_embeddings": 2048, "initializer_range": 0.02,
         "rms_norm_eps": 1e-06, "use_cache": true, "pad_token_id": null, "bos_token_id": 1,
         "eos_token_id": 2, "pretraining_tp": 1, "tie_word_embeddings": false,
         "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
         "attention_bias": false, "attention_dropout": 0.0, "mlp_bias": false, "head_dim": 128})"},
    {"mistral",
     R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 131072,
         "initializer_range": 0.02, "rms_norm_eps": 1e-06, "use_cache": true, "pad_token_id": null,
         "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": false,
         "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "sliding_window": 4096,
         "attention_dropout": 0.0})"},
    {"qwen2",
     R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
         "hidden_act": "silu", "max_position_embeddings": 32768, "initializer_range": 0.02,
         "rms_norm_eps": 1e-06, "use_cache": true, "tie_word_embeddings": false,
         "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
         "use_sliding_window": false, "sliding_window": null, "max_window_layers": 28,
         "attention_dropout": 0.0, "pad_token_id": null, "bos_token_id": null,
         "eos_token_id": null})"},
    {"qwen3",
     R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
         "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 32768,
         "initializer_range": 0.02, "rms_norm_eps": 1e-06, "use_cache": true,
         "tie_word_embeddings": false, "rope_parameters": {"rope_theta": 10000.0,
         "rope_type": "default"}, "attention_bias": false, "use_sliding_window": false,
         "sliding_window": null, "max_window_layers": 28, "attention_dropout": 0.0,
         "pad_token_id": null, "bos_token_id": null, "eos_token_id": null})"},
    {"roberta",
     R"({"vocab_size": 50265, "hidden_size": 768, "num_hidden_layers": 12,
         "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu",
         "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
         "max_position_embeddings": 512, "type_vocab_size": 2, "initializer_range": 0.02,
         "layer_norm_eps": 1e-12, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
         "use_cache": true, "classifier_dropout": null, "is_decoder": false,
         "add_cross_attention": false, "tie_word_embeddings": true})"},
    {"t5",
     R"({"vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6,
         "num_decoder_layers": 6, "num_heads": 8, "relative_attention_num_buckets": 32,
         "relative_attention_max_distance": 128, "dropout_rate": 0.1, "layer_norm_epsilon": 1e-06,
         "initializer_factor": 1.0, "feed_forward_proj": "relu", "use_cache": true,
         "pad_token_id": 0, "eos_token_id": 1, "classifier_dropout": 0.0, "is_decoder": false,
         "scale_decoder_outputs": true, "tie_word_embeddings": true})"},
};

struct Alias {
  const char *model_type, *general, *own;
};
constexpr Alias kAliases[] = {
    {"gpt2", "hidden_size", "n_embd"},
    {"gpt2", "max_position_embeddings", "n_positions"},
    {"gpt2", "num_attention_heads", "n_head"},
    {"gpt2", "num_hidden_layers", "n_layer"},
    {"distilbert", "hidden_size", "dim"},
    {"distilbert", "num_attention_heads", "n_heads"},
    {"distilbert", "num_hidden_layers", "n_layers"},
    {"t5", "hidden_size", "d_model"},
    {"t5", "num_attention_heads", "num_heads"},
    {"t5", "num_hidden_layers", "num_layers"},
    {"t5", "head_dim", "d_kv"},
};

std::string own_name(const std::string& model_type, const std::string& key) {
  for (const auto& alias : kAliases)
    if (model_type == alias.model_type && key == alias.general) return alias.own;
  return key;
}

[[noreturn]] void refuse_override(const std::string& message, const std::string& advice) {
  throw Error("G-TASK-8", ErrorKind::usage, "--config_overrides: " + message, advice);
}

template <class Number>
Number number_of(const std::string& key, const std::string& text, const char* expected) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    refuse_override(fmt::format("{} must be {}, received \"{}\"", key, expected, text),
                    "Correct the value.");
  return value;
}

bool flag_of(const std::string& key, std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return char(std::tolower(letter)); });
  for (const auto* yes : {"true", "1", "y", "yes"})
    if (text == yes) return true;
  for (const auto* no : {"false", "0", "n", "no"})
    if (text == no) return false;
  refuse_override(fmt::format("{} must be true or false, received \"{}\"", key, text),
                  "Correct the value.");
}

void set_override(nlohmann::json& config, const std::string& pair) {
  const auto equals = pair.find('=');
  if (equals == std::string::npos)
    refuse_override(fmt::format("expected key=value, received \"{}\"", pair),
                    "Write --config_overrides n_embd=64,n_layer=2");
  const auto key = own_name(config.value("model_type", ""), pair.substr(0, equals)),
             text = pair.substr(equals + 1);
  if (!config.contains(key)) {
    std::vector<std::string> known;
    for (const auto& [name, value] : config.items()) known.push_back(name);
    refuse_override(
        fmt::format("the configuration of {} has no key {}", config.value("model_type", ""), key),
        did_you_mean(key, known));
  }
  auto& value = config[key];
  if (value.is_boolean())
    value = flag_of(key, text);
  else if (value.is_number_integer())
    value = number_of<int64_t>(key, text, "an integer");
  else if (value.is_number_float())
    value = number_of<double>(key, text, "a number");
  else if (value.is_string())
    value = text;
  else
    refuse_override(
        fmt::format("{} is neither a number, a flag nor a text by default and cannot be replaced",
                    key),
        "Write a config.json and name it with --config_name.");
}

}  // namespace

nlohmann::json default_config(const std::string& model_type) {
  std::vector<std::string> known;
  for (const auto& each : kDefaults) {
    known.emplace_back(each.model_type);
    if (model_type != each.model_type) continue;
    auto config = nlohmann::json::parse(each.config);
    config["model_type"] = model_type;
    return config;
  }
  throw Error("G-TASK-8", ErrorKind::usage,
              fmt::format("--model_type {} is not known; expected {}", model_type, join_or(known)),
              did_you_mean(model_type, known));
}

nlohmann::json with_overrides(nlohmann::json config, const std::string& overrides) {
  for (size_t begin = 0; begin <= overrides.size();) {
    const auto end = std::min(overrides.find(',', begin), overrides.size());
    set_override(config, overrides.substr(begin, end - begin));
    begin = end + 1;
  }
  return config;
}

int64_t max_positions(const nlohmann::json& config) {
  const auto find = [](const nlohmann::json& values) -> std::optional<int64_t> {
    for (const auto* name : {"max_position_embeddings", "n_positions"})
      if (const auto found = values.find(name); found != values.end() && found->is_number_integer())
        return found->get<int64_t>();
    return std::nullopt;
  };
  if (const auto positions = find(config)) return *positions;
  for (const auto& each : kDefaults)
    if (config.value("model_type", "") == each.model_type)
      return find(nlohmann::json::parse(each.config)).value_or(1024);
  return 1024;
}

}  // namespace gradus::tasks
