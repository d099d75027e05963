#include <fmt/format.h>
#include <gradus/audio/ctc_tokenizer.h>
#include <gradus/core/error.h>

#include <algorithm>
#include <numeric>

#include "text/characters.h"

namespace gradus {
namespace {

template <class Item>
int64_t edits_between(const std::vector<Item>& from, const std::vector<Item>& to) {
  std::vector<int64_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), int64_t{0});
  for (size_t i = 1; i <= from.size(); ++i) {
    auto diagonal = row[0];
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= to.size(); ++j) {
      const auto changed = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[to.size()];
}

/// Two or more white characters become a space, the ends are cut, and spaces part words, as in
/// jiwer.
std::vector<std::u32string> spoken_words(const std::string& given) {
  const auto characters = text::code_points(given);
  std::u32string joined;
  for (size_t i = 0; i < characters.size();) {
    size_t end = i;
    while (end < characters.size() && text::is_space(characters[end])) ++end;
    if (end - i >= 2) {
      joined += U' ';
      i = end;
    } else {
      joined += characters[i++];
    }
  }
  std::vector<std::u32string> words;
  std::u32string word;
  for (const auto character : text::strip(joined)) {
    if (character != U' ') {
      word += character;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::vector<char32_t> spoken_characters(const std::string& given) {
  const auto characters = text::code_points(given);
  const auto stripped = text::strip(characters);
  return {stripped.begin(), stripped.end()};
}

template <class Split>
double error_rate(std::span<const std::string> references, std::span<const std::string> predictions,
                  Split split) {
  const auto refuse = [](const std::string& message) {
    throw Error("G-AUDIO-8", ErrorKind::data, message, "Give one prediction for each reference.");
  };
  if (references.size() != predictions.size())
    refuse(fmt::format("there are {} references and {} predictions", references.size(),
                       predictions.size()));
  int64_t edits = 0, total = 0;
  for (size_t i = 0; i < references.size(); ++i) {
    const auto reference = split(references[i]);
    edits += edits_between(reference, split(predictions[i]));
    total += static_cast<int64_t>(reference.size());
  }
  // Without a word to get wrong jiwer counts what was added.
  return static_cast<double>(edits) / static_cast<double>(std::max<int64_t>(total, 1));
}

}  // namespace

double word_error_rate(std::span<const std::string> references,
                       std::span<const std::string> predictions) {
  return error_rate(references, predictions, spoken_words);
}

double character_error_rate(std::span<const std::string> references,
                            std::span<const std::string> predictions) {
  return error_rate(references, predictions, spoken_characters);
}

}  // namespace gradus
