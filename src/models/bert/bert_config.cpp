#include "models/bert/bert_config.h"

#include <gradus/models/config_reader.h>

#include <nlohmann/json.hpp>

namespace gradus {

std::optional<int64_t> padding_row(const nlohmann::json& values, int64_t vocabulary,
                                   int64_t fallback) {
  const ConfigReader read(values);
  auto row = read.optional_integer("pad_token_id", -vocabulary, vocabulary - 1);
  if (!row && !values.contains("pad_token_id")) {
    if (fallback >= vocabulary)
      read.fail("vocab_size", "more than pad_token_id (" + std::to_string(fallback) + ")",
                std::to_string(vocabulary));
    row = fallback;
  }
  if (row && *row < 0) *row += vocabulary;
  return row;
}

const WeightTable& bert_weight_table() {
  static const WeightTable table = {
      {{"*LayerNorm.gamma", "*LayerNorm.weight", WeightRule::Use::load},
       {"*LayerNorm.beta", "*LayerNorm.bias", WeightRule::Use::load}},
      {"*.position_ids", "position_ids"}};
  return table;
}

void check_span_labels(const nlohmann::json& values) {
  const auto count = num_labels(values);
  if (count != 2)
    ConfigReader(values).fail("num_labels", "2 for question answering: a score for start and end",
                              std::to_string(count));
}

BertConfig::BertConfig(const nlohmann::json& values) {
  const ConfigReader read(values);
  is_roberta = read.text("model_type", "bert") == "roberta";
  vocabulary = read.integer("vocab_size", is_roberta ? 50265 : 30522);
  positions = read.integer("max_position_embeddings", 512);
  types = read.integer("type_vocab_size", 2);
  width = read.integer("hidden_size", 768);
  blocks = read.integer("num_hidden_layers", 12, 1, 10000);
  heads = read.integer("num_attention_heads", 12);
  inner = read.integer("intermediate_size", 3072);
  activation = layers::activation_named(read.text("hidden_act", "gelu"));
  hidden_dropout = read.probability("hidden_dropout_prob", 0.1);
  attention_dropout = read.probability("attention_probs_dropout_prob", 0.1);
  classifier_dropout = read.probability("classifier_dropout", hidden_dropout);
  norm_eps = read.number("layer_norm_eps", 1e-12, 0.0);
  tied = read.flag("tie_word_embeddings", true);
  padding_index = padding_row(values, vocabulary, is_roberta ? 1 : 0);
  if (width % heads != 0)
    read.fail("hidden_size", "a multiple of num_attention_heads (" + std::to_string(heads) + ")",
              std::to_string(width));
  if (read.flag("is_decoder", false))
    read.fail("is_decoder", "false: this architecture is an encoder here", "true");
  const auto positions_by = read.text("position_embedding_type", "absolute");
  if (positions_by != "absolute")
    read.fail("position_embedding_type", "absolute: other kinds of positions cannot be computed",
              '"' + positions_by + '"');
  if (!is_roberta) return;
  if (!padding_index)
    read.fail("pad_token_id", "a token id: RoBERTa counts positions after it", "null");
  if (*padding_index >= positions)
    read.fail("max_position_embeddings",
              "more than pad_token_id (" + std::to_string(*padding_index) + ")",
              std::to_string(positions));
}

}  // namespace gradus
