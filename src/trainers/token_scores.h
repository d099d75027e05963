#pragma once

#include <gradus/models/model_output.h>
#include <torch/types.h>

namespace gradus {

/// What `score_tokens` computes beside the log probabilities.
struct TokenScoreOptions {
  double temperature = 1;         ///< Logits are divided by it first.
  bool entropy = false;           ///< In nats, of the next token.
  bool mean_logits = false;       ///< The mean of the logits over the vocabulary.
  bool is_top1 = false;           ///< Whether the label is the most likely token.
  bool log_sum_sq_probs = false;  ///< log Σ p², which WPO weights pairs with.
};

/// Scores of the labels of a batch, as trl's fused head gives them. All have the shape (rows,
/// tokens - 1): column t is about label t + 1. Where there is no label they are 0 or false. Only
/// `log_probs` has a gradient.
struct TokenScores {
  torch::Tensor mask;       ///< Bool: where there is a label.
  torch::Tensor log_probs;  ///< Of the labels, float32.
  // The others are undefined unless they were asked for.
  torch::Tensor entropy;           ///< float32
  torch::Tensor mean_logits;       ///< float32
  torch::Tensor is_top1;           ///< Bool
  torch::Tensor log_sum_sq_probs;  ///< float32
};

/// Scores `labels` (rows, tokens), with -100 where there is none, by `logits` (rows, tokens,
/// vocabulary).
TokenScores score_tokens(const torch::Tensor& logits, const torch::Tensor& labels,
                         const TokenScoreOptions& options = {});

/// The same from the output of a model that was asked for them (`TokenScoring`), or from its
/// logits where it gave these.
TokenScores token_scores_in(const ModelOutput& outputs, const torch::Tensor& labels,
                            const TokenScoreOptions& options = {});

}  // namespace gradus
