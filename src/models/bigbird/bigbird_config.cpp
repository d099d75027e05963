#include "models/bigbird/bigbird_config.h"

#include <gradus/models/config_reader.h>

#include <nlohmann/json.hpp>

#include "models/bert/bert_config.h"

namespace gradus {

BigBirdConfig::BigBirdConfig(const nlohmann::json& values) {
  const ConfigReader read(values);
  vocabulary = read.integer("vocab_size", 50358);
  positions = read.integer("max_position_embeddings", 4096);
  types = read.integer("type_vocab_size", 2);
  width = read.integer("hidden_size", 768);
  blocks = read.integer("num_hidden_layers", 12, 1, 10000);
  heads = read.integer("num_attention_heads", 12);
  inner = read.integer("intermediate_size", 3072);
  block_size = read.integer("block_size", 64);
  random_blocks = read.integer("num_random_blocks", 3, 0, 10000);
  separator = read.integer("sep_token_id", 66, 0);
  activation = layers::activation_named(read.text("hidden_act", "gelu_new"));
  hidden_dropout = read.probability("hidden_dropout_prob", 0.1);
  attention_dropout = read.probability("attention_probs_dropout_prob", 0.1);
  classifier_dropout = read.probability("classifier_dropout", hidden_dropout);
  norm_eps = read.number("layer_norm_eps", 1e-12, 0.0);
  attention_bias = read.flag("use_bias", true);
  rescales_embeddings = read.flag("rescale_embeddings", false);
  is_decoder = read.flag("is_decoder", false);
  tied = read.flag("tie_word_embeddings", true);
  padding_index = padding_row(values, vocabulary, 0);
  const auto attention = read.text("attention_type", "block_sparse");
  is_sparse = attention == "block_sparse";
  if (!is_sparse && attention != "original_full")
    read.fail("attention_type", "block_sparse or original_full", '"' + attention + '"');
  if (width % heads != 0)
    read.fail("hidden_size", "a multiple of num_attention_heads (" + std::to_string(heads) + ")",
              std::to_string(width));
  if (read.flag("add_cross_attention", false))
    read.fail("add_cross_attention", "false: this architecture has no second input here", "true");
}

}  // namespace gradus
