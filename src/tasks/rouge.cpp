#include <gradus/tasks/text_metrics.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "tasks/metric_rows.h"
#include "text/porter_stemmer.h"

namespace gradus::metrics {
namespace {

using Words = std::vector<std::string>;

PrecisionRecallF1 shares(int64_t found, size_t wanted, size_t given) {
  if (wanted == 0 || given == 0) return {};
  PrecisionRecallF1 scores{double(found) / double(given), double(found) / double(wanted), 0};
  const double sum = scores.precision + scores.recall;
  if (sum > 0) scores.f1 = 2 * scores.precision * scores.recall / sum;
  return scores;
}

std::map<Words, int64_t> ngrams_of(const Words& words, size_t length) {
  std::map<Words, int64_t> counts;
  for (size_t i = 0; i + length <= words.size(); ++i)
    ++counts[Words(words.begin() + int64_t(i), words.begin() + int64_t(i + length))];
  return counts;
}

PrecisionRecallF1 shared_ngrams(const Words& reference, const Words& prediction, size_t length) {
  const auto wanted = ngrams_of(reference, length), given = ngrams_of(prediction, length);
  int64_t found = 0;
  for (const auto& [ngram, count] : wanted)
    if (const auto other = given.find(ngram); other != given.end())
      found += std::min(count, other->second);
  // As in rouge_score, a text without n-grams counts as having one.
  const auto count_of = [&](const Words& words) {
    return words.size() < length ? size_t{1} : std::max<size_t>(words.size() - length + 1, 1);
  };
  return shares(found, count_of(reference), count_of(prediction));
}

// Lengths of the longest common subsequences of all prefixes.
class CommonSubsequences {
 public:
  CommonSubsequences(const Words& first, const Words& second)
      : width_(second.size() + 1), table_((first.size() + 1) * width_, 0) {
    for (size_t i = 1; i <= first.size(); ++i)
      for (size_t j = 1; j <= second.size(); ++j)
        table_[i * width_ + j] = first[i - 1] == second[j - 1]
                                     ? at(i - 1, j - 1) + 1
                                     : std::max(at(i - 1, j), at(i, j - 1));
  }
  int32_t at(size_t i, size_t j) const { return table_[i * width_ + j]; }

 private:
  size_t width_;
  std::vector<int32_t> table_;
};

// Adds the places in `reference` of one longest common subsequence.
void add_common_places(const Words& reference, const Words& prediction, std::set<size_t>& places) {
  const CommonSubsequences table(reference, prediction);
  auto i = reference.size(), j = prediction.size();
  while (i > 0 && j > 0) {
    if (reference[i - 1] == prediction[j - 1]) {
      places.insert(i - 1);
      --i, --j;
    } else if (table.at(i, j - 1) > table.at(i - 1, j)) {
      --j;
    } else {
      --i;
    }
  }
}

std::vector<Words> sentences_of(std::string_view text, bool use_stemmer) {
  std::vector<Words> sentences;
  for (size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    if (end > begin) sentences.push_back(rouge_words(text.substr(begin, end - begin), use_stemmer));
    begin = end + 1;
  }
  return sentences;
}

PrecisionRecallF1 summary_level(const std::vector<Words>& reference,
                                const std::vector<Words>& prediction) {
  size_t wanted = 0, given = 0;
  std::map<std::string, int64_t> wanted_left, given_left;  // so that no word counts twice
  for (const auto& sentence : reference) {
    wanted += sentence.size();
    for (const auto& word : sentence) ++wanted_left[word];
  }
  for (const auto& sentence : prediction) {
    given += sentence.size();
    for (const auto& word : sentence) ++given_left[word];
  }
  int64_t found = 0;
  for (const auto& sentence : reference) {
    std::set<size_t> places;
    for (const auto& other : prediction) add_common_places(sentence, other, places);
    for (const auto place : places) {
      const auto& word = sentence[place];
      if (given_left[word] <= 0 || wanted_left[word] <= 0) continue;
      ++found;
      --given_left[word];
      --wanted_left[word];
    }
  }
  return shares(found, wanted, given);
}

// numpy's `random.choice(n, n)` of its global generator: 32 bits, cut to the bits that n needs,
// drawn again while too large.
uint32_t draw_row(std::mt19937& generator, uint32_t most) {
  if (most == 0) return 0;
  uint32_t mask = most;
  for (const int shift : {1, 2, 4, 8, 16}) mask |= mask >> shift;
  while (true)
    if (const auto value = static_cast<uint32_t>(generator()) & mask; value <= most) return value;
}

double bootstrap_median(const std::vector<double>& scores, std::mt19937& generator) {
  constexpr size_t kSamples = 1000;
  std::vector<double> means(kSamples);
  for (auto& mean : means) {
    double sum = 0;
    for (size_t i = 0; i < scores.size(); ++i)
      sum += scores[draw_row(generator, static_cast<uint32_t>(scores.size() - 1))];
    mean = sum / double(scores.size());
  }
  std::sort(means.begin(), means.end());
  const double below = means[kSamples / 2 - 1], above = means[kSamples / 2];
  return above - (above - below) * 0.5;
}

}  // namespace

std::vector<std::string> rouge_words(std::string_view text, bool use_stemmer) {
  Words words;
  std::string word;
  const auto finish = [&] {
    if (!word.empty())
      words.push_back(use_stemmer && word.size() > 3 ? text::porter_stem(word) : word);
    word.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      word += c;
    } else if (c >= 'A' && c <= 'Z') {
      word += static_cast<char>(c - 'A' + 'a');
    } else if (text.substr(i).starts_with("\u212A")) {  // the Kelvin sign; in lower case a k
      word += 'k';
      i += 2;
    } else if (text.substr(i).starts_with("\u0130")) {  // in lower case an i and a dot above
      word += 'i';
      finish();
      ++i;
    } else {
      finish();
    }
  }
  finish();
  return words;
}

RougeScores rouge(std::string_view reference, std::string_view prediction, bool use_stemmer) {
  const auto wanted = rouge_words(reference, use_stemmer),
             given = rouge_words(prediction, use_stemmer);
  return {.rouge1 = shared_ngrams(wanted, given, 1),
          .rouge2 = shared_ngrams(wanted, given, 2),
          .rougeL = shares(CommonSubsequences(wanted, given).at(wanted.size(), given.size()),
                           wanted.size(), given.size()),
          .rougeLsum = summary_level(sentences_of(reference, use_stemmer),
                                     sentences_of(prediction, use_stemmer))};
}

Metrics rouge_of_all(std::span<const std::string> references,
                     std::span<const std::string> predictions, bool use_stemmer,
                     std::mt19937& generator) {
  check_rows(references.size(), predictions.size());
  std::vector<double> scores[4];
  for (size_t i = 0; i < references.size(); ++i) {
    const auto all = rouge(references[i], predictions[i], use_stemmer);
    scores[0].push_back(all.rouge1.f1);
    scores[1].push_back(all.rouge2.f1);
    scores[2].push_back(all.rougeL.f1);
    scores[3].push_back(all.rougeLsum.f1);
  }
  Metrics result;
  const char* const names[] = {"rouge1", "rouge2", "rougeL", "rougeLsum"};
  for (size_t i = 0; i < 4; ++i)
    result[names[i]] = scores[i].empty() ? 0.0 : bootstrap_median(scores[i], generator);
  return result;
}

double rounded(double value, int digits) {
  char text[400];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return std::strtod(text, nullptr);
}

}  // namespace gradus::metrics
