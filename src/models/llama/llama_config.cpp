#include "models/llama/llama_config.h"

#include <gradus/core/json.h>
#include <gradus/models/config_reader.h>

#include <nlohmann/json.hpp>

namespace gradus {

namespace {

/// The defaults in which the members of the family differ.
struct Variant {
  int64_t vocabulary, inner;
  int64_t key_value_heads;  ///< 0: as many as heads
  int64_t head_width;       ///< 0: width / heads
  int64_t positions;
};

Variant variant_of(const std::string& model_type) {
  if (model_type == "mistral") return {32000, 14336, 8, 0, 131072};
  if (model_type == "qwen2") return {151936, 22016, 32, 0, 32768};
  if (model_type == "qwen3") return {151936, 22016, 32, 128, 32768};
  return {32000, 11008, 0, 0, 2048};
}

/// Whether a block of that name slides. Other kinds of attention cannot be computed here.
bool is_sliding(const ConfigReader& read, const nlohmann::json& name) {
  if (name == "sliding_attention") return true;
  if (name != "full_attention")
    read.fail("layer_types", "full_attention or sliding_attention for each layer", dump_json(name));
  return false;
}

/// The window of each block. A null `sliding_window` switches it off, an absent one means 4096.
std::vector<std::optional<int64_t>> windows_of(const nlohmann::json& values,
                                               const ConfigReader& read,
                                               const std::string& model_type, int64_t blocks) {
  std::vector<std::optional<int64_t>> windows(static_cast<size_t>(blocks));
  if (model_type == "llama") return windows;
  auto window = read.optional_integer("sliding_window");
  if (!window && !values.contains("sliding_window")) window = 4096;
  const bool is_mistral = model_type == "mistral";
  if (!is_mistral && !read.flag("use_sliding_window", false)) window.reset();
  const auto* types = read.find("layer_types");
  if (types != nullptr && (!types->is_array() || static_cast<int64_t>(types->size()) != blocks))
    read.fail("layer_types", "a list of " + std::to_string(blocks) + " names, one per layer",
              types->is_array() ? std::to_string(types->size()) + " entries" : "something else");
  const auto first = is_mistral ? 0 : read.integer("max_window_layers", 28, 0);
  for (int64_t i = 0; i < blocks; ++i) {
    const bool sliding =
        types != nullptr ? is_sliding(read, (*types)[static_cast<size_t>(i)]) : i >= first;
    if (types != nullptr && sliding && !window)
      read.fail("sliding_window",
                is_mistral
                    ? "a number, since layer_types has sliding layers"
                    : "a number and use_sliding_window true, since layer_types has sliding layers",
                "no window");
    if (sliding) windows[static_cast<size_t>(i)] = window;
  }
  return windows;
}

}  // namespace

LlamaConfig::LlamaConfig(const nlohmann::json& values) {
  const ConfigReader read(values);
  const auto type = read.text("model_type", "llama");
  const auto variant = variant_of(type);
  vocabulary = read.integer("vocab_size", variant.vocabulary);
  width = read.integer("hidden_size", 4096);
  inner = read.integer("intermediate_size", variant.inner);
  blocks = read.integer("num_hidden_layers", 32, 1, 10000);
  heads = read.integer("num_attention_heads", 32);
  const auto usual = values.contains("num_key_value_heads") || variant.key_value_heads == 0
                         ? heads
                         : variant.key_value_heads;
  key_value_heads = read.integer("num_key_value_heads", usual);
  const bool own_width = !values.contains("head_dim") && variant.head_width != 0;
  if (read.find("head_dim") == nullptr && !own_width && width % heads != 0)
    read.fail("hidden_size", "a multiple of num_attention_heads (" + std::to_string(heads) + ")",
              std::to_string(width));
  head_width = read.integer("head_dim", own_width ? variant.head_width : width / heads, 2);
  if (heads % key_value_heads != 0)
    read.fail("num_attention_heads",
              "a multiple of num_key_value_heads (" + std::to_string(key_value_heads) + ")",
              std::to_string(heads));
  padding_index = read.optional_integer("pad_token_id", -vocabulary, vocabulary - 1);
  if (padding_index && *padding_index < 0) *padding_index += vocabulary;
  positions = read.integer("max_position_embeddings", variant.positions);
  norm_eps = read.number("rms_norm_eps", 1e-6, 0.0);
  attention_dropout = read.probability("attention_dropout", 0.0);
  activation = read.text("hidden_act", "silu");
  layers::activation_named(activation);
  const bool attention_bias = type != "mistral" && read.flag("attention_bias", false);
  query_bias = type == "qwen2" || attention_bias;
  output_bias = type != "qwen2" && attention_bias;
  mlp_bias = type == "llama" && read.flag("mlp_bias", false);
  normed_heads = type == "qwen3";
  tied = read.flag("tie_word_embeddings", false);
  windows = windows_of(values, read, type, blocks);
}

}  // namespace gradus
