#include "text/porter_stemmer.h"

#include <algorithm>
#include <initializer_list>
#include <map>

namespace gradus::text {
namespace {

bool is_vowel(char letter) { return std::string_view("aeiou").find(letter) != std::string::npos; }

// 'c' or 'v' for each letter; a y is a vowel after a consonant.
std::string letter_kinds(std::string_view word) {
  std::string kinds;
  for (const char letter : word) {
    const bool vowel = is_vowel(letter) || (letter == 'y' && !kinds.empty() && kinds.back() == 'c');
    kinds += vowel ? 'v' : 'c';
  }
  return kinds;
}

// Porter's m: how often a consonant follows a vowel.
int measure(std::string_view stem) {
  const auto kinds = letter_kinds(stem);
  int count = 0;
  for (size_t i = 1; i < kinds.size(); ++i) count += kinds[i - 1] == 'v' && kinds[i] == 'c';
  return count;
}

bool has_vowel(std::string_view stem) { return letter_kinds(stem).find('v') != std::string::npos; }

bool ends_in_double_consonant(std::string_view word) {
  const auto size = word.size();
  return size >= 2 && word[size - 1] == word[size - 2] && letter_kinds(word).back() == 'c';
}

// Consonant, vowel, consonant at the end, the last one not w, x or y; for two letters NLTK takes
// vowel and consonant.
bool ends_in_cvc(std::string_view word) {
  const auto kinds = letter_kinds(word);
  if (word.size() >= 3)
    return kinds.ends_with("cvc") && std::string_view("wxy").find(word.back()) == std::string::npos;
  return kinds == "vc";
}

struct StemRule {
  std::string_view suffix, replacement;
};

// Applies the first rule whose suffix fits, if `condition` holds for what is before the suffix.
// Returns whether a suffix fitted.
template <class Condition>
bool apply_first(std::string& word, std::initializer_list<StemRule> rules, Condition condition) {
  for (const auto& rule : rules) {
    if (!word.ends_with(rule.suffix)) continue;
    const auto stem = std::string_view(word).substr(0, word.size() - rule.suffix.size());
    if (condition(stem)) word = std::string(stem).append(rule.replacement);
    return true;
  }
  return false;
}

bool positive_measure(std::string_view stem) { return measure(stem) > 0; }
bool measure_above_one(std::string_view stem) { return measure(stem) > 1; }
bool always(std::string_view) { return true; }

void remove_plural(std::string& word) {
  if (word.size() == 4 && word.ends_with("ies"))
    word.pop_back();
  else
    apply_first(word, {{"sses", "ss"}, {"ies", "i"}, {"ss", "ss"}, {"s", ""}}, always);
}

void restore_ending(std::string& stem) {
  if (apply_first(stem, {{"at", "ate"}, {"bl", "ble"}, {"iz", "ize"}}, always)) return;
  if (ends_in_double_consonant(stem)) {
    if (std::string_view("lsz").find(stem.back()) == std::string::npos) stem.pop_back();
  } else if (measure(stem) == 1 && ends_in_cvc(stem)) {
    stem += 'e';
  }
}

void remove_past_and_gerund(std::string& word) {
  if (word.ends_with("ied")) {
    word.erase(word.size() - (word.size() == 4 ? 1 : 2));
    return;
  }
  if (word.ends_with("eed")) {
    if (positive_measure(std::string_view(word).substr(0, word.size() - 3))) word.pop_back();
    return;
  }
  for (const std::string_view suffix : {"ed", "ing"}) {
    if (!word.ends_with(suffix)) continue;
    const auto stem = word.substr(0, word.size() - suffix.size());
    if (!has_vowel(stem)) continue;
    word = stem;
    restore_ending(word);
    return;
  }
}

void shorten_double_suffix(std::string& word) {
  while (word.ends_with("alli") &&
         positive_measure(std::string_view(word).substr(0, word.size() - 4)))
    word.erase(word.size() - 2);
  const bool fitted = apply_first(
      word, {{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},   {"anci", "ance"},
             {"izer", "ize"},    {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"},
             {"eli", "e"},       {"ousli", "ous"},   {"ization", "ize"}, {"ation", "ate"},
             {"ator", "ate"},    {"alism", "al"},    {"iveness", "ive"}, {"fulness", "ful"},
             {"ousness", "ous"}, {"aliti", "al"},    {"iviti", "ive"},   {"biliti", "ble"},
             {"fulli", "ful"}},
      positive_measure);
  if (!fitted && word.ends_with("logi") &&
      positive_measure(std::string_view(word).substr(0, word.size() - 3)))
    word.pop_back();
}

void remove_suffix(std::string& word) {
  apply_first(word,
              {{"icate", "ic"},
               {"ative", ""},
               {"alize", "al"},
               {"iciti", "ic"},
               {"ical", "ic"},
               {"ful", ""},
               {"ness", ""}},
              positive_measure);
  if (apply_first(word,
                  {{"al", ""},
                   {"ance", ""},
                   {"ence", ""},
                   {"er", ""},
                   {"ic", ""},
                   {"able", ""},
                   {"ible", ""},
                   {"ant", ""},
                   {"ement", ""},
                   {"ment", ""},
                   {"ent", ""}},
                  measure_above_one))
    return;
  if (apply_first(word, {{"ion", ""}}, [](std::string_view stem) {
        return measure(stem) > 1 && (stem.back() == 's' || stem.back() == 't');
      }))
    return;
  apply_first(
      word,
      {{"ou", ""}, {"ism", ""}, {"ate", ""}, {"iti", ""}, {"ous", ""}, {"ive", ""}, {"ize", ""}},
      measure_above_one);
}

void tidy_up(std::string& word) {
  if (word.ends_with('e')) {
    const auto stem = std::string_view(word).substr(0, word.size() - 1);
    const int count = measure(stem);
    if (count > 1 || (count == 1 && !ends_in_cvc(stem))) word.pop_back();
  }
  if (word.ends_with("ll") && measure(std::string_view(word).substr(0, word.size() - 1)) > 1)
    word.pop_back();
}

const std::map<std::string, std::string, std::less<>>& irregular_stems() {
  static const std::map<std::string, std::string, std::less<>> stems = {
      {"sky", "sky"},        {"skies", "sky"},        {"dying", "die"},
      {"lying", "lie"},      {"tying", "tie"},        {"news", "news"},
      {"innings", "inning"}, {"inning", "inning"},    {"outings", "outing"},
      {"outing", "outing"},  {"cannings", "canning"}, {"canning", "canning"},
      {"howe", "howe"},      {"proceed", "proceed"},  {"exceed", "exceed"},
      {"succeed", "succeed"}};
  return stems;
}

}  // namespace

std::string porter_stem(std::string_view word) {
  if (const auto found = irregular_stems().find(word); found != irregular_stems().end())
    return found->second;
  std::string stem(word);
  if (stem.size() <= 2) return stem;
  remove_plural(stem);
  remove_past_and_gerund(stem);
  if (stem.size() > 2 && stem.back() == 'y' && letter_kinds(stem)[stem.size() - 2] == 'c')
    stem.back() = 'i';
  shorten_double_suffix(stem);
  remove_suffix(stem);
  tidy_up(stem);
  return stem;
}

}  // namespace gradus::text
