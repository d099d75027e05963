#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/text/sentences.h>

#include <cstdlib>

#include "text/backend.h"
#include "text/characters.h"

namespace gradus {
namespace fs = std::filesystem;
using text::code_points;
using text::utf8_of;

namespace {

using View = std::u32string_view;

// How NLTK's data counts where a word was seen with a capital and with a small first letter.
constexpr int kInsideUpper = 1 << 2, kBeginLower = 1 << 4;
constexpr int kUpper = (1 << 1) | (1 << 2) | (1 << 3), kLower = (1 << 4) | (1 << 5) | (1 << 6);

constexpr View kNonWord = U")\";}]*:@'({[\u2018\u2019\u201c\u201d\u00ab\u00bb?!";
constexpr View kNoWordStart = U"(\"`{[:;&#*@)}]-,";
constexpr View kClosing = U"\"')]}\u2018\u2019\u201c\u201d\u00ab\u00bb";

// `\s` of NLTK, which leaves out four control characters that Python counts as space.
bool is_blank(char32_t c) { return text::is_space(c) && !(c >= 0x1C && c <= 0x1F); }

bool is_in(View set, char32_t c) { return set.find(c) != View::npos; }

// How many characters from `place` on are equal to `c`.
size_t run_of(View text, size_t place, char32_t c) {
  size_t count = 0;
  while (place + count < text.size() && text[place + count] == c) ++count;
  return count;
}

// The length of "--", "..." or ". . ." at `place`; 0 for none.
size_t long_punctuation(View text, size_t place) {
  for (const char32_t c : {U'-', U'.'})
    if (const auto count = run_of(text, place, c); count >= 2) return count;
  size_t pairs = 0;
  while (place + 2 * pairs + 1 < text.size() && text[place + 2 * pairs] == '.' &&
         is_blank(text[place + 2 * pairs + 1]))
    ++pairs;
  const auto last = place + 2 * pairs;
  if (!(last < text.size() && text[last] == '.')) pairs = pairs == 0 ? 0 : pairs - 1;
  return pairs >= 2 ? 2 * pairs + 1 : 0;
}

bool ends_word(View line, size_t place) {
  if (place == line.size() || is_blank(line[place]) || is_in(kNonWord, line[place])) return true;
  return long_punctuation(line, place) != 0;
}

// Words and punctuation of a line; full stops stay with their word.
std::vector<View> punkt_words(View line) {
  std::vector<View> words;
  for (size_t begin = 0; begin < line.size();) {
    if (is_blank(line[begin])) {
      ++begin;
      continue;
    }
    auto size = long_punctuation(line, begin);
    if (size == 0) {
      size = 1;
      if (!is_in(kNoWordStart, line[begin]))
        while (!ends_word(line, begin + size) &&
               !(line[begin + size] == ',' && ends_word(line, begin + size + 1)))
          ++size;
    }
    words.push_back(line.substr(begin, size));
    begin += size;
  }
  return words;
}

// "12", "-3.5", "1,000.": what counts as a number.
bool is_number(View word) {
  size_t place = 0;
  if (place < word.size() && word[place] == '-') ++place;
  if (place < word.size() && (word[place] == '.' || word[place] == ',')) ++place;
  if (place == word.size() || !text::is_digit(word[place])) return false;
  for (++place; place < word.size(); ++place)
    if (!text::is_digit(word[place]) && !is_in(U",.-", word[place])) return false;
  return true;
}

std::string without_period(const std::string& type) {
  return type.size() > 1 && type.back() == '.' ? type.substr(0, type.size() - 1) : type;
}

// A place where a sentence may end: the mark itself, what follows it directly, and where the next
// word begins (0: other punctuation follows).
struct PossibleEnd {
  size_t mark = 0, after = 0, next = 0;
};

std::vector<PossibleEnd> possible_ends(View text) {
  std::vector<PossibleEnd> ends;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (!is_in(U".?!", text[i])) continue;
    if (is_in(kNonWord, text[i + 1])) {
      ends.push_back({i, i + 2, 0});
      continue;
    }
    auto next = i + 1;
    while (next < text.size() && is_blank(text[next])) ++next;
    if (next == i + 1 || next == text.size()) continue;
    auto after = next;
    while (after < text.size() && !is_blank(text[after])) ++after;
    ends.push_back({i, after, next});
  }
  return ends;
}

// Where the word before a possible end begins, in text from `from` on; `otherwise` when no space is
// before it.
size_t word_before(View text, size_t from, size_t mark, size_t otherwise) {
  for (auto i = mark; i > from + 1;)
    if (is_in(U" \t\n\r\v\f", text[--i])) return i + 1;
  return otherwise;
}

// The length of closing quotes and brackets at the front that belong to the sentence before, with
// the spaces after them; 0 for none.
size_t closing_at(View sentence) {
  for (size_t count = 1; count <= sentence.size() && is_in(kClosing, sentence[count - 1]);
       ++count) {
    auto end = count;
    while (end < sentence.size() && is_blank(sentence[end])) ++end;
    if (end > count || end == sentence.size() || sentence.substr(end).starts_with(U"--"))
      return end;
  }
  return 0;
}

std::vector<std::string> lines_of(const fs::path& file) {
  std::vector<std::string> lines;
  const auto content = read_file(file);
  for (size_t begin = 0; begin < content.size();) {
    const auto end = std::min(content.find('\n', begin), content.size());
    lines.push_back(content.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::pair<std::string, std::string> parted_at_tab(const std::string& line) {
  const auto tab = line.find('\t');
  return tab == std::string::npos ? std::pair(line, std::string())
                                  : std::pair(line.substr(0, tab), line.substr(tab + 1));
}

}  // namespace

struct SentenceSplitter::Token {
  explicit Token(View word) : word(word) {
    type = is_number(word) ? "##number##" : text::lowercase(utf8_of(word));
  }

  bool ends_with_period() const { return word.back() == '.'; }
  bool is_ellipsis() const { return word.size() >= 2 && run_of(word, 0, '.') == word.size(); }
  bool is_initial() const {
    return word.size() == 2 && word[1] == '.' && text::is_unicode_word(word[0]) &&
           !text::is_digit(word[0]);
  }
  std::string type_in_sentence() const { return ends_sentence ? without_period(type) : type; }

  View word;
  std::string type;  // in lower case; numbers are all one
  bool ends_sentence = false, is_abbreviation = false, ellipsis = false;
};

SentenceSplitter SentenceSplitter::from_folder(const fs::path& folder) {
  SentenceSplitter splitter;
  for (auto& line : lines_of(folder / "abbrev_types.txt"))
    splitter.abbreviations_.insert(std::move(line));
  for (auto& line : lines_of(folder / "sent_starters.txt"))
    splitter.starters_.insert(std::move(line));
  for (const auto& line : lines_of(folder / "collocations.tab"))
    splitter.collocations_.insert(parted_at_tab(line));
  for (const auto& line : lines_of(folder / "ortho_context.tab")) {
    const auto [word, flags] = parted_at_tab(line);
    splitter.contexts_[word] = std::atoi(flags.c_str());
  }
  return splitter;
}

std::optional<fs::path> SentenceSplitter::find_nltk_data(const std::string& language) {
  std::vector<fs::path> places;
  if (const char* given = std::getenv("NLTK_DATA")) {
    const std::string list = given;
    for (size_t begin = 0; begin <= list.size();) {
      const auto end = std::min(list.find(':', begin), list.size());
      if (end > begin) places.emplace_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  places.push_back(expand_user("~/nltk_data"));
  for (const char* place : {"/usr/share/nltk_data", "/usr/local/share/nltk_data",
                            "/usr/lib/nltk_data", "/usr/local/lib/nltk_data"})
    places.emplace_back(place);
  for (const auto& place : places) {
    std::error_code ignored;
    const auto folder = place / "tokenizers" / "punkt_tab" / language;
    if (fs::is_directory(folder, ignored)) return folder;
  }
  return std::nullopt;
}

int SentenceSplitter::contexts_of(const std::string& type) const {
  const auto found = contexts_.find(type);
  return found == contexts_.end() ? 0 : found->second;
}

void SentenceSplitter::mark_alone(Token& token) const {
  if (token.word.size() == 1 && is_in(U".?!", token.word[0])) {
    token.ends_sentence = true;
  } else if (token.is_ellipsis()) {
    token.ellipsis = true;
  } else if (token.ends_with_period() && !token.word.ends_with(U"..")) {
    const auto lower = text::lowercase(utf8_of(token.word.substr(0, token.word.size() - 1)));
    const auto dash = lower.rfind('-');
    token.is_abbreviation =
        abbreviations_.contains(lower) ||
        (dash != std::string::npos && abbreviations_.contains(lower.substr(dash + 1)));
    token.ends_sentence = !token.is_abbreviation;
  }
}

SentenceSplitter::Start SentenceSplitter::begins_sentence(const Token& token) const {
  if (token.word.size() == 1 && is_in(U";:,.!?", token.word[0])) return Start::no;
  const int seen = contexts_of(token.type_in_sentence());
  if (text::is_upper(token.word[0]) && (seen & kLower) != 0 && (seen & kInsideUpper) == 0)
    return Start::yes;
  if (text::is_lower(token.word[0]) && ((seen & kUpper) != 0 || (seen & kBeginLower) == 0))
    return Start::no;
  return Start::unknown;
}

void SentenceSplitter::mark_with_next(Token& token, const Token& next) const {
  if (!token.ends_with_period()) return;
  const auto type = without_period(token.type), next_type = next.type_in_sentence();
  const bool initial = token.is_initial(), next_upper = text::is_upper(next.word[0]);
  const auto goes_on = [&] {
    token.ends_sentence = false;
    token.is_abbreviation = true;
  };
  if (collocations_.contains({type, next_type})) return goes_on();
  const auto start = begins_sentence(next);
  if ((token.is_abbreviation || token.ellipsis) && !initial &&
      (start == Start::yes || (next_upper && starters_.contains(next_type)))) {
    token.ends_sentence = true;
    return;
  }
  if (!initial && type != "##number##") return;
  if (start == Start::no) return goes_on();
  if (start == Start::unknown && initial && next_upper && (contexts_of(next_type) & kLower) == 0)
    goes_on();
}

// Whether a sentence ends within `context`, before its last word.
bool SentenceSplitter::ends_sentence(View context) const {
  std::vector<Token> tokens;
  for (size_t begin = 0; begin <= context.size();) {
    const auto end = std::min(context.find(U'\n', begin), context.size());
    for (const auto word : punkt_words(context.substr(begin, end - begin))) {
      tokens.emplace_back(word);
      mark_alone(tokens.back());
    }
    begin = end + 1;
  }
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    mark_with_next(tokens[i], tokens[i + 1]);
    if (tokens[i].ends_sentence) return true;
  }
  return false;
}

std::vector<std::string> SentenceSplitter::split(std::string_view utf8) const {
  const auto owned = code_points(utf8);
  const View text = owned;
  // The ends to decide on, each with the word before it. Of several in one word the last counts.
  std::vector<std::pair<PossibleEnd, size_t>> candidates;
  size_t from = 0, word = 0;
  for (const auto& end : possible_ends(text)) {
    const auto begin = word_before(text, from, end.mark, word);
    if (!candidates.empty() && begin < from) candidates.pop_back();
    candidates.emplace_back(end, begin);
    word = begin;
    from = end.mark;
  }
  std::vector<std::pair<size_t, size_t>> slices;
  size_t last = 0;
  for (const auto& [end, begin] : candidates) {
    if (!ends_sentence(text.substr(begin, end.after - begin))) continue;
    slices.emplace_back(last, end.mark + 1);
    last = end.next != 0 ? end.next : end.mark + 1;
  }
  slices.emplace_back(last, text::strip_right(text).size());

  std::vector<std::string> sentences;
  size_t moved = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const auto begin = slices[i].first + moved;
    auto end = slices[i].second;
    moved = 0;
    if (i + 1 < slices.size()) {
      const auto [next, stop] = slices[i + 1];
      const auto following = next < stop ? text.substr(next, stop - next) : View();
      if (const auto closing = closing_at(following); closing != 0) {
        end = next + text::strip_right(following.substr(0, closing)).size();
        moved = closing;
      }
    }
    if (begin < end) sentences.push_back(utf8_of(text.substr(begin, end - begin)));
  }
  return sentences;
}

}  // namespace gradus
