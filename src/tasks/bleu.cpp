#include <gradus/core/error.h>
#include <gradus/tasks/text_metrics.h>

#include <cmath>
#include <map>

#include "tasks/metric_rows.h"
#include "text/characters.h"

namespace gradus::metrics {
namespace {

using Tokens = std::vector<std::string>;
constexpr size_t kOrders = 4;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t place = 0; (place = text.find(from, place)) != std::string::npos; place += to.size())
    text.replace(place, from.size(), to);
}

bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_stop(char c) { return c == '.' || c == ','; }

// Punctuation that always stands alone. The full stop, the comma, the hyphen and the apostrophe do
// not.
bool stands_alone(char c) {
  return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// Writes `write(first, second)` for each pair of neighbours that `fits`, from left to right.
template <class Fits, class Write>
std::string rewrite_pairs(const std::string& text, Fits fits, Write write) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && fits(text[i], text[i + 1])) {
      write(out, text[i], text[i + 1]);
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

void put_apart(std::string& out, char first, char second) {
  out += first;
  out += ' ';
  out += second;
  out += ' ';
}

// The n-grams of all orders, each as its tokens.
std::map<Tokens, int64_t> bleu_ngrams(const Tokens& tokens) {
  std::map<Tokens, int64_t> counts;
  for (size_t order = 1; order <= kOrders; ++order)
    for (size_t i = 0; i + order <= tokens.size(); ++i)
      ++counts[Tokens(tokens.begin() + int64_t(i), tokens.begin() + int64_t(i + order))];
  return counts;
}

int64_t nearest_length(int64_t length, const std::vector<int64_t>& others) {
  int64_t best = others.front();
  for (const auto other : others) {
    const auto distance = std::abs(length - other), best_distance = std::abs(length - best);
    if (distance < best_distance || (distance == best_distance && other < best)) best = other;
  }
  return best;
}

void count_row(const std::vector<std::string>& references, const std::string& prediction,
               BleuScore& score) {
  std::map<Tokens, int64_t> wanted;
  std::vector<int64_t> lengths;
  for (const auto& reference : references) {
    const auto tokens = bleu_tokens(reference);
    lengths.push_back(int64_t(tokens.size()));
    for (const auto& [ngram, count] : bleu_ngrams(tokens)) {
      auto& most = wanted[ngram];
      most = std::max(most, count);
    }
  }
  const auto tokens = bleu_tokens(prediction);
  score.prediction_length += int64_t(tokens.size());
  score.reference_length += nearest_length(int64_t(tokens.size()), lengths);
  for (const auto& [ngram, count] : bleu_ngrams(tokens)) {
    score.totals[ngram.size() - 1] += count;
    if (const auto found = wanted.find(ngram); found != wanted.end())
      score.counts[ngram.size() - 1] += std::min(count, found->second);
  }
}

}  // namespace

std::vector<std::string> bleu_tokens(std::string_view text) {
  auto line = text::utf8_of(text::strip_right(text::code_points(text)));
  replace_all(line, "<skipped>", "");
  replace_all(line, "-\n", "");
  replace_all(line, "\n", " ");
  if (line.find('&') != std::string::npos) {
    replace_all(line, "&quot;", "\"");
    replace_all(line, "&amp;", "&");
    replace_all(line, "&lt;", "<");
    replace_all(line, "&gt;", ">");
  }
  std::string apart = " ";
  for (const char c : line) {
    if (stands_alone(c))
      (apart += ' ') += c, apart += ' ';
    else
      apart += c;
  }
  apart += ' ';
  apart =
      rewrite_pairs(apart, [](char a, char b) { return !is_decimal(a) && is_stop(b); }, put_apart);
  apart = rewrite_pairs(
      apart, [](char a, char b) { return is_stop(a) && !is_decimal(b); },
      [](std::string& out, char first, char second) {
        out += ' ';
        put_apart(out, first, second);
        out.pop_back();
      });
  apart = rewrite_pairs(apart, [](char a, char b) { return is_decimal(a) && b == '-'; }, put_apart);
  return text::words_of(apart);
}

BleuScore bleu(std::span<const std::vector<std::string>> references,
               std::span<const std::string> predictions) {
  check_rows(references.size(), predictions.size());
  BleuScore score;
  for (size_t i = 0; i < references.size(); ++i) {
    if (references[i].empty())
      throw Error("G-TASK-6", ErrorKind::usage, "a row has no reference to compute BLEU with",
                  "Give at least one reference for each prediction.");
    count_row(references[i], predictions[i], score);
  }
  if (score.prediction_length < score.reference_length)
    score.brevity_penalty =
        score.prediction_length > 0
            ? std::exp(1 - double(score.reference_length) / double(score.prediction_length))
            : 0.0;
  if (score.counts == std::array<int64_t, kOrders>{}) return score;
  double smoothing = 1, logarithms = 0;
  for (size_t n = 0; n < kOrders && score.totals[n] > 0; ++n) {
    const double total = double(score.totals[n]);
    score.precisions[n] = score.counts[n] == 0 ? 100.0 / ((smoothing *= 2) * total)
                                               : 100.0 * double(score.counts[n]) / total;
  }
  for (const auto precision : score.precisions)
    logarithms += precision == 0 ? -9999999999.0 : std::log(precision);
  score.score = score.brevity_penalty * std::exp(logarithms / double(kOrders));
  return score;
}

}  // namespace gradus::metrics
