#include <fmt/format.h>
#include <gradus/audio/ctc_tokenizer.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "text/backend.h"
#include "text/characters.h"

namespace gradus {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_vocabulary(const fs::path& file, const std::string& what) {
  throw Error("G-AUDIO-7", ErrorKind::data, fmt::format("{}: {}", file.string(), what),
              "vocab.json maps characters to numbers: {\"a\": 0, \"b\": 1, \"|\": 2}. Leave "
              "--tokenizer_name_or_path out to build one from the data.");
}

std::map<std::string, int64_t> read_vocabulary(const fs::path& file) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) refuse_vocabulary(file, "there is no such file");
  const auto table = read_json(file);
  if (!table.is_object() || table.empty()) refuse_vocabulary(file, "it is not a table");
  std::map<std::string, int64_t> vocabulary;
  for (const auto& [symbol, number] : table.items()) {
    if (!number.is_number_integer() || number.get<int64_t>() < 0)
      refuse_vocabulary(file, fmt::format("the number of \"{}\" is {}", symbol, number.dump()));
    vocabulary[symbol] = number.get<int64_t>();
  }
  return vocabulary;
}

void take_text(const nlohmann::json& settings, const char* name, std::string& target) {
  const auto found = settings.find(name);
  if (found == settings.end()) return;
  if (found->is_string()) target = found->get<std::string>();
  if (found->is_object() && found->contains("content")) target = found->at("content");
}

nlohmann::json added_token(const std::string& content, bool is_special) {
  return {{"content", content},    {"lstrip", !is_special}, {"normalized", false},
          {"rstrip", !is_special}, {"single_word", false},  {"special", is_special}};
}

}  // namespace

CTCTokenizer::CTCTokenizer(std::map<std::string, int64_t> vocabulary, CTCTokens tokens)
    : vocabulary_(std::move(vocabulary)), tokens_(std::move(tokens)) {
  int64_t next = 0;
  for (const auto& [symbol, number] : vocabulary_) {
    symbols_[number] = symbol;
    next = std::max(next, number + 1);
  }
  // As transformers adds what the vocabulary lacks.
  next = std::max<int64_t>(next, static_cast<int64_t>(vocabulary_.size()));
  for (const auto* token : {&tokens_.bos_token, &tokens_.eos_token, &tokens_.unk_token,
                            &tokens_.pad_token, &tokens_.word_delimiter_token}) {
    if (vocabulary_.count(*token) != 0 || added_.count(*token) != 0) continue;
    added_[*token] = next;
    symbols_[next++] = *token;
  }
  pad_ = *id_of(tokens_.pad_token);
  const auto unknown = vocabulary_.find(tokens_.unk_token);
  unknown_ =
      unknown != vocabulary_.end() ? std::optional(unknown->second) : id_of(tokens_.unk_token);
  for (const auto* table : {&vocabulary_, &added_})
    for (const auto& [symbol, number] : *table)
      if (text::code_points(symbol).size() > 1) long_symbols_.push_back(symbol);
  std::stable_sort(long_symbols_.begin(), long_symbols_.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

CTCTokenizer CTCTokenizer::from_vocabulary(const fs::path& file, CTCTokens tokens) {
  return CTCTokenizer(read_vocabulary(file), std::move(tokens));
}

CTCTokenizer CTCTokenizer::from_pretrained(const fs::path& folder) {
  CTCTokens tokens;
  std::error_code ignored;
  if (fs::exists(folder / "tokenizer_config.json", ignored)) {
    const auto settings = read_json(folder / "tokenizer_config.json");
    take_text(settings, "bos_token", tokens.bos_token);
    take_text(settings, "eos_token", tokens.eos_token);
    take_text(settings, "unk_token", tokens.unk_token);
    take_text(settings, "pad_token", tokens.pad_token);
    take_text(settings, "word_delimiter_token", tokens.word_delimiter_token);
    tokens.do_lower_case = settings.value("do_lower_case", false);
  }
  return from_vocabulary(folder / "vocab.json", std::move(tokens));
}

std::optional<int64_t> CTCTokenizer::id_of(const std::string& token) const {
  for (const auto* table : {&vocabulary_, &added_}) {
    const auto found = table->find(token);
    if (found != table->end()) return found->second;
  }
  return std::nullopt;
}

std::vector<int64_t> CTCTokenizer::encode(std::string_view given) const {
  std::vector<int64_t> ids;
  const auto add = [&](const std::string& symbol) {
    const auto id = id_of(symbol);
    if (id || unknown_) ids.push_back(id.value_or(unknown_.value_or(0)));
  };
  auto rest = given;
  std::string plain;  // since the last symbol of several characters
  const auto add_plain = [&](bool before_symbol, bool after_symbol) {
    auto characters = std::u32string_view();
    auto all = text::code_points(plain);
    characters = all;
    // Spaces beside a long symbol belong to it.
    if (before_symbol) characters = text::strip_right(characters);
    if (after_symbol) characters = text::strip_left(characters);
    for (const auto character : characters) {
      auto symbol = text::utf8_of(std::u32string_view(&character, 1));
      if (tokens_.do_lower_case && text::is_lower(character) && character < 128)
        symbol[0] = static_cast<char>(symbol[0] - 'a' + 'A');
      add(character == U' ' ? tokens_.word_delimiter_token : symbol);
    }
    plain.clear();
  };
  bool after_symbol = false;
  while (!rest.empty()) {
    const auto match =
        std::find_if(long_symbols_.begin(), long_symbols_.end(),
                     [&](const std::string& symbol) { return rest.starts_with(symbol); });
    if (match == long_symbols_.end()) {
      plain += rest.front();
      rest.remove_prefix(1);
      continue;
    }
    add_plain(/*before_symbol=*/true, after_symbol);
    add(*match);
    after_symbol = true;
    rest.remove_prefix(match->size());
  }
  add_plain(/*before_symbol=*/false, after_symbol);
  return ids;
}

std::string CTCTokenizer::decode(std::span<const int64_t> ids, bool group_tokens) const {
  std::string result;
  std::string before;
  bool is_first = true;
  for (const auto id : ids) {
    const auto found = symbols_.find(id);
    const auto& symbol = found != symbols_.end() ? found->second : tokens_.unk_token;
    const bool repeats = !is_first && group_tokens && symbol == before;
    is_first = false;
    before = symbol;
    if (repeats || symbol == tokens_.pad_token) continue;
    result += symbol == tokens_.word_delimiter_token ? " " : symbol;
  }
  result = text::stripped(result);
  return tokens_.do_lower_case ? text::lowercase(result) : result;
}

std::vector<std::string> CTCTokenizer::batch_decode(const torch::Tensor& ids,
                                                    bool group_tokens) const {
  const auto rows = ids.to(torch::kCPU, torch::kLong).contiguous();
  std::vector<std::string> texts;
  for (int64_t row = 0; row < rows.size(0); ++row)
    texts.push_back(decode(
        {rows.const_data_ptr<int64_t>() + row * rows.size(1), static_cast<size_t>(rows.size(1))},
        group_tokens));
  return texts;
}

int64_t CTCTokenizer::full_vocab_size() const {
  return static_cast<int64_t>(vocabulary_.size() + added_.size());
}

std::vector<int64_t> CTCTokenizer::all_special_ids() const {
  std::vector<int64_t> ids;
  for (const auto* token : {&tokens_.bos_token, &tokens_.eos_token, &tokens_.unk_token,
                            &tokens_.pad_token, &tokens_.word_delimiter_token})
    if (const auto id = id_of(*token); id && std::find(ids.begin(), ids.end(), *id) == ids.end())
      ids.push_back(*id);
  return ids;
}

std::optional<std::string> CTCTokenizer::id_to_token(int64_t id) const {
  const auto found = symbols_.find(id);
  return found == symbols_.end() ? std::nullopt : std::optional(found->second);
}

void CTCTokenizer::save_pretrained(const fs::path& directory) const {
  make_directory(directory);
  const auto write = [&](const char* name, const nlohmann::json& content) {
    write_file_atomically(directory / name, content.dump(2) + "\n");
  };
  write("vocab.json", vocabulary_);
  if (!added_.empty()) write("added_tokens.json", added_);
  auto decoder = nlohmann::json::object();
  const auto is_special = [&](const std::string& symbol) {
    return added_.count(symbol) != 0 || symbol == tokens_.word_delimiter_token;
  };
  for (const auto* table : {&vocabulary_, &added_})
    for (const auto& [symbol, number] : *table)
      if (is_special(symbol) || text::code_points(symbol).size() > 1)
        decoder[std::to_string(number)] = added_token(symbol, is_special(symbol));
  write("tokenizer_config.json", {{"added_tokens_decoder", decoder},
                                  {"backend", "custom"},
                                  {"bos_token", tokens_.bos_token},
                                  {"do_lower_case", tokens_.do_lower_case},
                                  {"eos_token", tokens_.eos_token},
                                  {"model_max_length", 1e30},
                                  {"model_specific_special_tokens",
                                   {{"word_delimiter_token", tokens_.word_delimiter_token}}},
                                  {"pad_token", tokens_.pad_token},
                                  {"replace_word_delimiter_char", " "},
                                  {"target_lang", nullptr},
                                  {"tokenizer_class", "Wav2Vec2CTCTokenizer"},
                                  {"unk_token", tokens_.unk_token},
                                  {"word_delimiter_token", tokens_.word_delimiter_token}});
}

std::vector<std::pair<std::string, int64_t>> ctc_vocabulary(std::span<const std::string> texts,
                                                            const CTCTokens& tokens) {
  std::set<char32_t> characters{U' '};  // texts end with one
  for (const auto& one : texts)
    for (const auto character : text::code_points(one)) characters.insert(character);
  std::vector<std::pair<std::string, int64_t>> vocabulary;
  int64_t space = 0;
  for (int64_t number = 0; const auto character : characters) {
    if (character == U' ')
      space = number;
    else
      vocabulary.emplace_back(text::utf8_of(std::u32string_view(&character, 1)), number);
    ++number;
  }
  // A symbol that is there already keeps its place, as in a Python dict.
  const auto set = [&](const std::string& symbol, int64_t number) {
    const auto found = std::find_if(vocabulary.begin(), vocabulary.end(),
                                    [&](const auto& entry) { return entry.first == symbol; });
    if (found != vocabulary.end())
      found->second = number;
    else
      vocabulary.emplace_back(symbol, number);
  };
  set(tokens.word_delimiter_token, space);
  set(tokens.unk_token, static_cast<int64_t>(vocabulary.size()));
  set(tokens.pad_token, static_cast<int64_t>(vocabulary.size()));
  return vocabulary;
}

std::string vocabulary_json(std::span<const std::pair<std::string, int64_t>> vocabulary) {
  std::string text;
  for (const auto& [symbol, number] : vocabulary)
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ",
                        nlohmann::json(symbol).dump(-1, ' ', /*ensure_ascii=*/true), number);
  return "{" + text + "}";
}

}  // namespace gradus
