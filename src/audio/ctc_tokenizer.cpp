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

constexpr int64_t kLargestNumber = 1'000'000'000;

[[noreturn]] void refuse_vocabulary(const fs::path& file, const std::string& what) {
  throw Error("G-AUDIO-7", ErrorKind::data, fmt::format("{}: {}", file.string(), what),
              "vocab.json maps characters to numbers: {\"a\": 0, \"b\": 1, \"|\": 2}. Leave "
              "--tokenizer_name_or_path out to build one from the data.");
}

int64_t checked_number(const std::string& symbol, const nlohmann::json& number,
                       const fs::path& file) {
  if (!number.is_number_integer() || number.get<int64_t>() < 0 ||
      number.get<int64_t>() > kLargestNumber)
    refuse_vocabulary(
        file, fmt::format("the number of \"{}\" is {}", symbol, number.dump().substr(0, 60)));
  return number.get<int64_t>();
}

std::map<std::string, int64_t> read_vocabulary(const fs::path& file,
                                               const std::string& language = {}) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) refuse_vocabulary(file, "there is no such file");
  auto table = read_json(file);
  if (!language.empty() && table.is_object()) {
    if (!table.contains(language))
      refuse_vocabulary(file, fmt::format("it has no table for target_lang '{}'", language));
    table = nlohmann::json(table.at(language));
  }
  if (!table.is_object() || table.empty()) refuse_vocabulary(file, "it is not a table");
  std::map<std::string, int64_t> vocabulary;
  for (const auto& [symbol, number] : table.items()) {
    if (number.is_object() && language.empty())
      refuse_vocabulary(file,
                        "it has a table for each language, and tokenizer_config.json has no "
                        "target_lang that names one");
    vocabulary[symbol] = checked_number(symbol, number, file);
  }
  return vocabulary;
}

void take_text(const nlohmann::json& settings, const char* name, std::string& target) {
  const auto found = settings.find(name);
  if (found == settings.end()) return;
  if (found->is_string()) target = found->get<std::string>();
  if (found->is_object() && found->contains("content") && found->at("content").is_string())
    target = found->at("content");
}

/// The same for a symbol that a vocabulary may do without.
void take_optional_text(const nlohmann::json& settings, const char* name, std::string& target) {
  if (const auto found = settings.find(name); found != settings.end() && found->is_null())
    target.clear();
  take_text(settings, name, target);
}

void take_tokens(const nlohmann::json& settings, CTCTokens& tokens) {
  take_optional_text(settings, "bos_token", tokens.bos_token);
  take_optional_text(settings, "eos_token", tokens.eos_token);
  take_text(settings, "unk_token", tokens.unk_token);
  take_text(settings, "pad_token", tokens.pad_token);
  for (const auto* name : {"additional_special_tokens", "extra_special_tokens"})
    if (const auto found = settings.find(name); found != settings.end() && found->is_array())
      for (const auto& token : *found)
        if (token.is_string() && !token.get_ref<const std::string&>().empty())
          tokens.extra_special_tokens.push_back(token);
}

using AddedTokens = std::map<std::string, CTCAddedToken>;

/// Those that tokenizer_config.json lists by number.
AddedTokens listed_tokens(const nlohmann::json& list, const fs::path& file) {
  AddedTokens added;
  for (const auto& [key, token] : list.items()) {
    const bool is_number =
        !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || !token.is_object() || !token.contains("content") ||
        !token.at("content").is_string())
      refuse_vocabulary(file, fmt::format("added_tokens_decoder has the entry \"{}\": {}", key,
                                          token.dump().substr(0, 60)));
    const auto strips = token.find("lstrip");
    added[token.at("content")] = {std::stoll(key),
                                  strips != token.end() && strips->is_boolean() && *strips};
  }
  return added;
}

/// Those of added_tokens.json, where tokenizer_config.json lists none.
AddedTokens named_tokens(const fs::path& file) {
  AddedTokens added;
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return added;
  const auto table = read_json(file);
  if (!table.is_object()) refuse_vocabulary(file, "it is not a table");
  for (const auto& [symbol, number] : table.items())
    added[symbol] = {checked_number(symbol, number, file)};
  return added;
}

nlohmann::json added_token(const std::string& content, bool takes_spaces, bool is_special) {
  return {{"content", content},     {"lstrip", takes_spaces}, {"normalized", false},
          {"rstrip", takes_spaces}, {"single_word", false},   {"special", is_special}};
}

nlohmann::json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::json(nullptr) : nlohmann::json(text);
}

bool has_several_characters(const std::string& symbol) {
  return text::code_points(symbol).size() > 1;
}

}  // namespace

CTCTokenizer::CTCTokenizer(std::map<std::string, int64_t> vocabulary, CTCTokens tokens,
                           std::map<std::string, CTCAddedToken> added)
    : vocabulary_(std::move(vocabulary)), added_(std::move(added)), tokens_(std::move(tokens)) {
  std::erase_if(added_, [&](const auto& entry) { return vocabulary_.count(entry.first) != 0; });
  // As transformers adds what the vocabulary lacks.
  auto next = static_cast<int64_t>(vocabulary_.size() + added_.size());
  for (const auto& [symbol, number] : vocabulary_) {
    symbols_[number] = symbol;
    next = std::max(next, number + 1);
  }
  for (const auto& [symbol, token] : added_) {
    symbols_.emplace(token.id, symbol);
    next = std::max(next, token.id + 1);
  }
  for (const auto& token : special_tokens()) {
    if (vocabulary_.count(token) != 0 || added_.count(token) != 0) continue;
    added_[token].id = next;
    symbols_[next++] = token;
  }
  pad_ = *id_of(tokens_.pad_token);
  const auto unknown = vocabulary_.find(tokens_.unk_token);
  unknown_ =
      unknown != vocabulary_.end() ? std::optional(unknown->second) : id_of(tokens_.unk_token);
  for (const auto& [symbol, number] : vocabulary_)
    if (has_several_characters(symbol)) long_symbols_.push_back({symbol, true});
  for (const auto& [symbol, token] : added_)
    if (!symbol.empty()) long_symbols_.push_back({symbol, token.takes_spaces});
  std::stable_sort(long_symbols_.begin(), long_symbols_.end(),
                   [](const auto& a, const auto& b) { return a.text.size() > b.text.size(); });
}

CTCTokenizer CTCTokenizer::from_vocabulary(const fs::path& file, CTCTokens tokens) {
  return CTCTokenizer(read_vocabulary(file), std::move(tokens));
}

CTCTokenizer CTCTokenizer::from_pretrained(const fs::path& folder) {
  CTCTokens tokens;
  std::string language;
  auto settings = nlohmann::json::object();
  std::error_code ignored;
  const auto config = folder / "tokenizer_config.json", map = folder / "special_tokens_map.json";
  if (fs::exists(config, ignored)) settings = read_json(config);
  if (!settings.is_object()) refuse_vocabulary(config, "it is not a table");
  take_tokens(settings, tokens);
  take_text(settings, "word_delimiter_token", tokens.word_delimiter_token);
  take_text(settings, "replace_word_delimiter_char", tokens.replace_word_delimiter_char);
  take_text(settings, "target_lang", language);
  if (const auto lower = settings.find("do_lower_case"); lower != settings.end())
    tokens.do_lower_case = lower->is_boolean() && *lower;
  const auto listed = settings.find("added_tokens_decoder");
  const bool lists = listed != settings.end() && listed->is_object();
  // Older folders have these settings in files of their own.
  if (!lists && fs::exists(map, ignored))
    if (const auto older = read_json(map); older.is_object()) take_tokens(older, tokens);
  auto added = lists ? listed_tokens(*listed, config) : named_tokens(folder / "added_tokens.json");
  return CTCTokenizer(read_vocabulary(folder / "vocab.json", language), std::move(tokens),
                      std::move(added));
}

std::optional<int64_t> CTCTokenizer::id_of(const std::string& token) const {
  if (const auto found = vocabulary_.find(token); found != vocabulary_.end()) return found->second;
  if (const auto found = added_.find(token); found != added_.end()) return found->second.id;
  return std::nullopt;
}

std::vector<std::string> CTCTokenizer::special_tokens() const {
  std::vector<std::string> all;
  for (const auto* token : {&tokens_.bos_token, &tokens_.eos_token})
    if (!token->empty()) all.push_back(*token);
  for (const auto* token : {&tokens_.unk_token, &tokens_.pad_token, &tokens_.word_delimiter_token})
    all.push_back(*token);
  all.insert(all.end(), tokens_.extra_special_tokens.begin(), tokens_.extra_special_tokens.end());
  return all;
}

std::vector<int64_t> CTCTokenizer::encode(std::string_view given) const {
  std::vector<int64_t> ids;
  const auto add = [&](const std::string& symbol) {
    const auto id = id_of(symbol);
    if (id || unknown_) ids.push_back(id.value_or(unknown_.value_or(0)));
  };
  auto rest = given;
  std::string plain;  // since the last symbol of several characters
  const auto add_plain = [&](bool strips_right, bool strips_left) {
    const auto all = text::code_points(tokens_.do_lower_case ? text::uppercase(plain) : plain);
    std::u32string_view characters = all;
    if (strips_right) characters = text::strip_right(characters);
    if (strips_left) characters = text::strip_left(characters);
    for (const auto character : characters)
      add(character == U' ' ? tokens_.word_delimiter_token
                            : text::utf8_of(std::u32string_view(&character, 1)));
    plain.clear();
  };
  bool strips_left = false;  // the last long symbol takes the spaces after it
  while (!rest.empty()) {
    const auto match =
        std::find_if(long_symbols_.begin(), long_symbols_.end(),
                     [&](const LongSymbol& symbol) { return rest.starts_with(symbol.text); });
    if (match == long_symbols_.end()) {
      plain += rest.front();
      rest.remove_prefix(1);
      continue;
    }
    add_plain(match->takes_spaces, strips_left);
    add(match->text);
    strips_left = match->takes_spaces;
    rest.remove_prefix(match->text.size());
  }
  add_plain(/*strips_right=*/false, strips_left);
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
    result += symbol == tokens_.word_delimiter_token ? tokens_.replace_word_delimiter_char : symbol;
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
  int64_t size = 0;
  for (const auto& [number, symbol] : symbols_) size = std::max(size, number + 1);
  return size;
}

std::vector<int64_t> CTCTokenizer::all_special_ids() const {
  std::vector<int64_t> ids;
  for (const auto& token : special_tokens())
    if (const auto id = id_of(token); id && std::find(ids.begin(), ids.end(), *id) == ids.end())
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
  auto added = nlohmann::json::object(), decoder = nlohmann::json::object();
  for (const auto& [symbol, token] : added_) added[symbol] = token.id;
  if (!added_.empty()) write("added_tokens.json", added);
  for (const auto& [symbol, number] : vocabulary_)
    if (symbol == tokens_.word_delimiter_token)
      decoder[std::to_string(number)] = added_token(symbol, false, /*is_special=*/true);
    else if (has_several_characters(symbol))
      decoder[std::to_string(number)] = added_token(symbol, true, /*is_special=*/false);
  const auto special = special_tokens();
  for (const auto& [symbol, token] : added_)
    decoder[std::to_string(token.id)] =
        added_token(symbol, token.takes_spaces,
                    std::find(special.begin(), special.end(), symbol) != special.end());
  nlohmann::json config = {
      {"added_tokens_decoder", decoder},
      {"backend", "custom"},
      {"bos_token", text_or_null(tokens_.bos_token)},
      {"do_lower_case", tokens_.do_lower_case},
      {"eos_token", text_or_null(tokens_.eos_token)},
      {"model_max_length", 1e30},
      {"model_specific_special_tokens", {{"word_delimiter_token", tokens_.word_delimiter_token}}},
      {"pad_token", tokens_.pad_token},
      {"replace_word_delimiter_char", tokens_.replace_word_delimiter_char},
      {"target_lang", nullptr},
      {"tokenizer_class", "Wav2Vec2CTCTokenizer"},
      {"unk_token", tokens_.unk_token},
      {"word_delimiter_token", tokens_.word_delimiter_token}};
  if (!tokens_.extra_special_tokens.empty())
    config["extra_special_tokens"] = tokens_.extra_special_tokens;
  write("tokenizer_config.json", config);
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
