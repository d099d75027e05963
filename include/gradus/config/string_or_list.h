#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace gradus {

/// One word or a list of words: `report_to = "tensorboard"`, `report_to = {"tensorboard",
/// "jsonl"}`.
///
/// Remembers which of the two was given, so that it is written back in the same form.
class StringOrList {
 public:
  StringOrList() = default;
  StringOrList(const char* word) : words_{word}, single_(true) {}  // NOLINT: meant to convert
  StringOrList(std::string word)
      : words_{std::move(word)}, single_(true) {}  // NOLINT: meant to convert
  StringOrList(std::initializer_list<std::string> words) : words_(words) {}
  StringOrList(std::vector<std::string> words)
      : words_(std::move(words)) {}  // NOLINT: meant to convert

  /// Every word; one for a single word.
  const std::vector<std::string>& words() const { return words_; }
  bool is_single() const { return single_; }
  bool contains(const std::string& word) const {
    for (const auto& each : words_)
      if (each == word) return true;
    return false;
  }

  friend bool operator==(const StringOrList&, const StringOrList&) = default;

 private:
  std::vector<std::string> words_;
  bool single_ = false;
};

}  // namespace gradus
