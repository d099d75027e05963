#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradus {

/// Splits text into sentences as NLTK's `sent_tokenize` does, by the Punkt algorithm.
///
/// Punkt decides at each `.`, `?` and `!` whether a sentence ends there. What it knows of a
/// language (abbreviations, words that often begin a sentence) comes from a folder of NLTK's
/// `punkt_tab` data, which gradus does not bring along. Without it every full stop that is followed
/// by a space ends a sentence, except after initials and numbers.
///
/// ROUGE-Lsum wants one sentence per line; the task `summarization` splits with this class.
/// Thread-safety: `split` may be called from several threads at the same time.
class SentenceSplitter {
 public:
  /// Knows no language.
  SentenceSplitter() = default;
  /// Reads abbrev_types.txt, collocations.tab, sent_starters.txt and ortho_context.tab of
  /// `punkt_tab/english`, say. Throws `Error` G-IO-1 for a file that is not there.
  static SentenceSplitter from_folder(const std::filesystem::path& folder);
  /// Where NLTK would find the data of a language: in `NLTK_DATA`, `~/nltk_data` and the system's
  /// places. Unset when it is in none of them.
  static std::optional<std::filesystem::path> find_nltk_data(
      const std::string& language = "english");

  /// The sentences of a text, without the spaces between them.
  std::vector<std::string> split(std::string_view text) const;

 private:
  struct Token;
  enum class Start { yes, no, unknown };

  bool ends_sentence(std::u32string_view context) const;
  void mark_alone(Token& token) const;
  void mark_with_next(Token& token, const Token& next) const;
  Start begins_sentence(const Token& token) const;
  int contexts_of(const std::string& type) const;

  std::set<std::string, std::less<>> abbreviations_;
  std::set<std::string, std::less<>> starters_;
  std::set<std::pair<std::string, std::string>> collocations_;
  std::map<std::string, int, std::less<>> contexts_;  ///< flags: where and how a word was written
};

}  // namespace gradus
