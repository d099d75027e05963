#include <gradus/core/error.h>
#include <gradus/tasks/text_metrics.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tasks/metric_rows.h"
#include "text/backend.h"
#include "text/characters.h"

namespace gradus::metrics {
namespace {

bool is_ascii_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

std::string without_articles(const std::string& utf8) {
  const auto text = text::code_points(utf8);
  std::u32string out;
  for (size_t begin = 0; begin < text.size();) {
    auto end = begin;
    while (end < text.size() && text::is_word(text[end])) ++end;
    const auto word = std::u32string_view(text).substr(begin, end - begin);
    if (word == U"a" || word == U"an" || word == U"the")
      out += U' ';
    else
      out += word;
    if (end < text.size()) out += text[end++];
    begin = end;
  }
  return text::utf8_of(out);
}

// The harmonic mean of precision and recall of words.
double overlap_f1(const std::vector<std::string>& wanted, const std::vector<std::string>& given) {
  std::map<std::string, int64_t> left;
  for (const auto& word : wanted) ++left[word];
  int64_t same = 0;
  for (const auto& word : given)
    if (left[word]-- > 0) ++same;
  if (same == 0) return 0;
  const double precision = double(same) / double(given.size()),
               recall = double(same) / double(wanted.size());
  return (2 * precision * recall) / (precision + recall);
}

struct AnswerScore {
  double exact = 0, f1 = 0;
};

// `empty_answers`: two answers without words agree, as SQuAD 2.0 has it.
AnswerScore best_score(const std::vector<std::string>& references, const std::string& prediction,
                       bool empty_answers) {
  AnswerScore best;
  const auto given = normalized_answer(prediction);
  const auto given_words = text::words_of(given);
  for (const auto& reference : references) {
    const auto wanted = normalized_answer(reference);
    const auto wanted_words = text::words_of(wanted);
    best.exact = std::max(best.exact, wanted == given ? 1.0 : 0.0);
    best.f1 = std::max(best.f1, empty_answers && (wanted_words.empty() || given_words.empty())
                                    ? double(wanted_words == given_words)
                                    : overlap_f1(wanted_words, given_words));
  }
  return best;
}

void add_means(Metrics& metrics, const std::string& prefix, const std::vector<AnswerScore>& scores,
               const std::vector<size_t>& rows) {
  if (rows.empty()) return;
  double exact = 0, f1 = 0;
  for (const auto row : rows) {
    exact += scores[row].exact;
    f1 += scores[row].f1;
  }
  metrics[prefix + "exact"] = 100.0 * exact / double(rows.size());
  metrics[prefix + "f1"] = 100.0 * f1 / double(rows.size());
  metrics[prefix + "total"] = double(rows.size());
}

// The best mean score over all thresholds of the probability of no answer, and that threshold.
template <class Score>
std::pair<double, double> best_threshold(std::span<const std::string> predictions,
                                         const std::vector<bool>& has_answer,
                                         std::span<const double> probabilities, Score score) {
  std::vector<size_t> order(predictions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return probabilities[a] < probabilities[b]; });
  double current = double(std::count(has_answer.begin(), has_answer.end(), false));
  double best = current, threshold = 0;
  for (const auto row : order) {
    current += has_answer[row] ? score(row) : predictions[row].empty() ? 0.0 : -1.0;
    if (current <= best) continue;
    best = current;
    threshold = probabilities[row];
  }
  return {100.0 * best / double(predictions.size()), threshold};
}

}  // namespace

std::string normalized_answer(std::string_view text) {
  auto lower = text::lowercase(text);
  std::erase_if(lower, is_ascii_punctuation);
  std::string joined;
  for (const auto& word : text::words_of(without_articles(lower))) {
    if (!joined.empty()) joined += ' ';
    joined += word;
  }
  return joined;
}

Metrics squad(std::span<const std::vector<std::string>> references,
              std::span<const std::string> predictions) {
  check_rows(references.size(), predictions.size());
  AnswerScore sum;
  for (size_t i = 0; i < references.size(); ++i) {
    if (references[i].empty())
      throw Error("G-TASK-6", ErrorKind::data,
                  "question " + std::to_string(i) +
                      " has no answer to compare with, which SQuAD 1.1 does not know",
                  "Give an answer, or use --version_2_with_negative.");
    const auto score = best_score(references[i], predictions[i], /*empty_answers=*/false);
    sum = {sum.exact + score.exact, sum.f1 + score.f1};
  }
  const double total = double(references.size());
  return {{"exact_match", 100.0 * sum.exact / total}, {"f1", 100.0 * sum.f1 / total}};
}

Metrics squad_v2(std::span<const std::vector<std::string>> references,
                 std::span<const std::string> predictions,
                 std::span<const double> no_answer_probabilities) {
  check_rows(references.size(), predictions.size());
  std::vector<double> zeros;
  if (no_answer_probabilities.empty()) {
    zeros.assign(references.size(), 0.0);
    no_answer_probabilities = zeros;
  }
  check_rows(references.size(), no_answer_probabilities.size());
  std::vector<AnswerScore> raw, scores;
  std::vector<bool> has_answer;
  std::vector<size_t> all, answered, unanswered;
  for (size_t i = 0; i < references.size(); ++i) {
    auto known = references[i];
    has_answer.push_back(!known.empty());
    std::erase_if(known, [](const std::string& each) { return normalized_answer(each).empty(); });
    if (known.empty()) known = {""};
    raw.push_back(best_score(known, predictions[i], /*empty_answers=*/true));
    const bool none = no_answer_probabilities[i] > 1.0;  // evaluate's no_answer_threshold
    const double agrees = has_answer[i] ? 0.0 : 1.0;
    scores.push_back(none ? AnswerScore{agrees, agrees} : raw[i]);
    all.push_back(i);
    (has_answer[i] ? answered : unanswered).push_back(i);
  }
  Metrics metrics;
  add_means(metrics, "", scores, all);
  add_means(metrics, "HasAns_", scores, answered);
  add_means(metrics, "NoAns_", scores, unanswered);
  if (references.empty()) return metrics;
  std::tie(metrics["best_exact"], metrics["best_exact_thresh"]) = best_threshold(
      predictions, has_answer, no_answer_probabilities, [&](size_t row) { return raw[row].exact; });
  std::tie(metrics["best_f1"], metrics["best_f1_thresh"]) = best_threshold(
      predictions, has_answer, no_answer_probabilities, [&](size_t row) { return raw[row].f1; });
  return metrics;
}

}  // namespace gradus::metrics
