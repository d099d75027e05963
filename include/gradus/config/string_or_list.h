#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace gradus {

/// One string or a list of strings: `report_to = "tensorboard"`, `report_to = {"tensorboard",
/// "jsonl"}`.
///
/// Remembers which of the two was given, so that it is written back in the same form. Files and
/// flags accept both.
class StringOrList {
 public:
  /// An empty list.
  StringOrList() = default;
  /// One string.
  StringOrList(const char* word) : words_{word}, single_(true) {}  // NOLINT: meant to convert
  /// One string.
  StringOrList(std::string word)
      : words_{std::move(word)}, single_(true) {}  // NOLINT: meant to convert
  /// A list.
  StringOrList(std::initializer_list<std::string> words) : words_(words) {}
  /// A list.
  StringOrList(std::vector<std::string> words)
      : words_(std::move(words)) {}  // NOLINT: meant to convert

  /// All strings; exactly one for a single string.
  const std::vector<std::string>& words() const { return words_; }
  /// Whether one string was given rather than a list.
  bool is_single() const { return single_; }
  /// Whether `word` is one of the strings.
  bool contains(const std::string& word) const {
    for (const auto& each : words_)
      if (each == word) return true;
    return false;
  }

  /// Whether both hold the same strings in the same form.
  friend bool operator==(const StringOrList&, const StringOrList&) = default;

 private:
  std::vector<std::string> words_;
  bool single_ = false;
};

}  // namespace gradus
