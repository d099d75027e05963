#pragma once

#include <gradus/models/layers/activation.h>
#include <gradus/models/weight_table.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace gradus {

/// The values of a BERT or RoBERTa config.json. Throws `Error` G-MODEL-5 for one that makes no
/// model.
struct BertConfig {
  explicit BertConfig(const nlohmann::json& values);

  bool is_roberta;
  int64_t vocabulary, positions, types, width, blocks, heads, inner;
  std::optional<int64_t> padding_index;
  layers::Activation activation;
  double hidden_dropout, attention_dropout, classifier_dropout, norm_eps;
  bool tied;
};

/// The row of `pad_token_id` among `vocabulary` ids; an absent key means `fallback`, null none.
std::optional<int64_t> padding_row(const nlohmann::json& values, int64_t vocabulary,
                                   int64_t fallback);

/// Old spellings in files of this family: gamma and beta of norms, stored position ids.
const WeightTable& bert_weight_table();

/// Question answering has two scores per token, its start and its end. Throws G-MODEL-5 for another
/// `num_labels`.
void check_span_labels(const nlohmann::json& values);

}  // namespace gradus
