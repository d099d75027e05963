#pragma once

#include <gradus/core/metrics.h>
#include <gradus/tasks/metrics.h>

#include <array>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The scores of generated text and of answers, with the numbers of the Python packages
/// rouge_score 0.1.2, sacrebleu 2.6 and evaluate's `squad` and `squad_v2`.
///
/// Texts are UTF-8. References come first, predictions second; both have the same number of rows,
/// else G-TASK-6 is thrown. All functions may be called from several threads at the same time.
namespace gradus::metrics {

/// ROUGE of one text: shared words, shared pairs of words, longest common subsequence.
struct RougeScores {
  PrecisionRecallF1 rouge1;     ///< single words
  PrecisionRecallF1 rouge2;     ///< pairs of words
  PrecisionRecallF1 rougeL;     ///< the longest common subsequence of the whole texts
  PrecisionRecallF1 rougeLsum;  ///< the same sentence by sentence; sentences are lines
};

/// The words that ROUGE compares: runs of a-z and 0-9 in lower case; with `use_stemmer` words of
/// more than 3 letters are reduced to their stem.
std::vector<std::string> rouge_words(std::string_view text, bool use_stemmer);

/// ROUGE of one prediction, as `rouge_scorer.RougeScorer.score(target, prediction)`.
RougeScores rouge(std::string_view reference, std::string_view prediction,
                  bool use_stemmer = false);

/// ROUGE of many texts as evaluate's `rouge` gives it: `rouge1`, `rouge2`, `rougeL` and
/// `rougeLsum`, each the median of 1000 bootstrap means of F1.
///
/// `generator` draws the samples. With the seed of a run it gives what numpy's global generator
/// gives. No rows give 0.
Metrics rouge_of_all(std::span<const std::string> references,
                     std::span<const std::string> predictions, bool use_stemmer,
                     std::mt19937& generator);

/// The parts of a BLEU score.
struct BleuScore {
  double score = 0;                       ///< 0 to 100
  std::array<double, 4> precisions = {};  ///< of words, pairs, triples and quadruples, in percent
  double brevity_penalty = 1;             ///< below 1 when the predictions are too short
  std::array<int64_t, 4> counts = {};     ///< n-grams that are in a reference
  std::array<int64_t, 4> totals = {};     ///< n-grams of the predictions
  int64_t prediction_length = 0;          ///< in words
  int64_t reference_length = 0;           ///< of the references nearest in length
};

/// The tokens of BLEU: sacrebleu's `13a`, that of WMT.
std::vector<std::string> bleu_tokens(std::string_view text);

/// BLEU of a corpus with sacrebleu's defaults (tokenizer 13a, exponential smoothing). Each row has
/// one or more references.
BleuScore bleu(std::span<const std::vector<std::string>> references,
               std::span<const std::string> predictions);

/// An answer as SQuAD compares it: in lower case, without ASCII punctuation, articles and
/// superfluous spaces.
std::string normalized_answer(std::string_view text);

/// SQuAD 1.1: `exact_match` and `f1` in percent; for each row the best over its references. A row
/// without references is an error (G-TASK-6), as in Python.
Metrics squad(std::span<const std::vector<std::string>> references,
              std::span<const std::string> predictions);

/// SQuAD 2.0, where an empty list of references and an empty prediction mean that there is no
/// answer: `exact`, `f1` and `total`, the same as `HasAns_…` and `NoAns_…` where there are such
/// rows, and `best_exact`, `best_f1` with their thresholds. `no_answer_probabilities` is empty
/// (all 0) or has one value per row.
Metrics squad_v2(std::span<const std::vector<std::string>> references,
                 std::span<const std::string> predictions,
                 std::span<const double> no_answer_probabilities = {});

/// `round(value, digits)` of Python.
double rounded(double value, int digits);

}  // namespace gradus::metrics
