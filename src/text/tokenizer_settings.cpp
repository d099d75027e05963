#include "text/tokenizer_settings.h"

#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_set>

#include "core/list_folder.h"
#include "text/tokenizer_class.h"

namespace gradus::text {

namespace {

using nlohmann::json;

constexpr std::array kNamedTokens = {"bos_token", "eos_token", "unk_token", "sep_token",
                                     "pad_token", "cls_token", "mask_token"};
constexpr double kLargestLength = 1e20;  // above it transformers means "not known"
constexpr const char* kUnknownLength = "1000000000000000019884624838656";

constexpr int64_t kMostSentinels = 100'000;
constexpr int64_t kMostNamedTokens = 1'000;

[[noreturn]] void throw_absurd(const char* what, int64_t count, int64_t most) {
  throw Error("G-TEXT-2", ErrorKind::model,
              "cannot use tokenizer_config.json: " + std::string(what) + " is " +
                  std::to_string(count) + ", at most " + std::to_string(most) + " are read",
              "The file is damaged. Fetch or save the tokenizer again.");
}

bool is_named(std::string_view key) {
  return std::find(kNamedTokens.begin(), kNamedTokens.end(), key) != kNamedTokens.end();
}

json read_if_there(const std::filesystem::path& file) {
  return std::filesystem::exists(file) ? read_json(file) : json();
}

/// The text of a token given as text or as {"content": …}; "" when it is neither.
std::string token_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  return {};
}

/// A token as an entry of "added_tokens"; flags are kept where the file gives them.
json token_entry(const json& value, bool special) {
  if (!value.is_object()) return special_token_entry(value.get<std::string>());
  auto entry = value;
  entry.erase("__type");
  entry["special"] = special || entry.value("special", false);
  return entry;
}

PaddingSide side_of(const json& value, PaddingSide otherwise) {
  if (!value.is_string()) return otherwise;
  const auto text = value.get<std::string>();
  return text == "left" || text == "Left" ? PaddingSide::left : PaddingSide::right;
}

/// tokenizer_config.json with the older files merged in, as transformers does when it has no
/// added_tokens_decoder.
json merged_config(const json& tokenizer_config, const json& special_tokens_map) {
  auto config = tokenizer_config.is_object() ? tokenizer_config : json::object();
  if (config.contains("added_tokens_decoder") || !special_tokens_map.is_object()) return config;
  for (const auto& [key, value] : special_tokens_map.items()) config[key] = value;
  return config;
}

void read_special_tokens(const json& config, const ClassFacts& facts, TokenizerSettings& settings) {
  for (const auto& [name, text] : facts.special_tokens) {
    if (!config.contains(name)) settings.set_special(name, text);
  }
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    const bool own = !is_named(key);
    if (own && !value.is_string()) continue;  // add_bos_token and the like
    if (const auto text = token_text(value); !text.empty()) settings.set_special(key, text);
    if (std::ssize(settings.special_tokens) > kMostNamedTokens)
      throw_absurd("the number of special tokens", config.size(), kMostNamedTokens);
  }
  auto extra = config.value("extra_special_tokens", json());
  if ((extra.is_null() || extra.empty()) && config.contains("additional_special_tokens"))
    extra = config["additional_special_tokens"];
  if (extra.is_object()) {
    if (std::ssize(extra) > kMostNamedTokens)
      throw_absurd("the number of extra special tokens", std::ssize(extra), kMostNamedTokens);
    for (const auto& [key, value] : extra.items()) settings.set_special(key, token_text(value));
  } else if (extra.is_array()) {
    for (const auto& value : extra) settings.extra_special_tokens.push_back(token_text(value));
  } else if (facts.name == "T5Tokenizer") {  // its sentinels
    const auto count = config.value("extra_ids", int64_t{100});
    if (count > kMostSentinels) throw_absurd("extra_ids", count, kMostSentinels);
    for (int64_t i = 0; i < count; ++i)
      settings.extra_special_tokens.push_back("<extra_id_" + std::to_string(i) + ">");
  }
}

void read_chat_templates(const std::filesystem::path& directory, const json& config,
                         TokenizerSettings& settings) {
  if (config.contains("chat_template")) {
    const auto& entry = config["chat_template"];
    if (entry.is_string()) settings.chat_templates["default"] = entry.get<std::string>();
    if (entry.is_array()) {
      for (const auto& named : entry)
        settings.chat_templates[named.at("name").get<std::string>()] =
            named.at("template").get<std::string>();
    }
  }
  std::map<std::string, std::string> files;
  if (const auto file = directory / "chat_template.jinja"; std::filesystem::exists(file))
    files["default"] = read_file(file);
  if (const auto folder = directory / "chat_templates"; std::filesystem::is_directory(folder)) {
    for (const auto& path : list_folder(folder))
      if (path.extension() == ".jinja") files[path.stem().string()] = read_file(path);
  }
  if (!files.empty()) settings.chat_templates = std::move(files);
}

/// Lengths that no integer holds mean "no limit", as those do that Python writes.
std::optional<int64_t> whole_length(double length) {
  if (length < 0)
    throw Error("G-TEXT-2", ErrorKind::model,
                "cannot use tokenizer_config.json: model_max_length is negative",
                "Correct the value, or leave it out for no limit.");
  return length < 9e18 ? std::optional(static_cast<int64_t>(length)) : std::nullopt;
}

void read_general(const json& config, const json& baked, const ClassFacts& facts,
                  TokenizerSettings& settings) {
  const auto& truncation = baked["truncation"];
  const auto& padding = baked["padding"];
  const auto class_side = facts.pads_left ? PaddingSide::left : PaddingSide::right;
  settings.padding_side = side_of(
      config.value("padding_side", json()),
      padding.is_object() ? side_of(padding.value("direction", json()), class_side) : class_side);
  settings.truncation_side = side_of(
      config.value("truncation_side", json()),
      truncation.is_object() ? side_of(truncation.value("direction", json()), PaddingSide::right)
                             : PaddingSide::right);
  // GPT2Tokenizer sets its pad_token to none itself.
  if (padding.is_object() && settings.find_special("pad_token") == nullptr &&
      !config.contains("pad_token") && facts.name != "GPT2Tokenizer") {
    settings.set_special("pad_token", padding.value("pad_token", "[PAD]"));
  }
  const auto length = config.contains("model_max_length") ? config["model_max_length"]
                                                          : config.value("max_len", json());
  if (length.is_number() && length.get<double>() <= kLargestLength)
    settings.model_max_length = whole_length(length.get<double>());
  settings.model_input_names = config.contains("model_input_names")
                                   ? config["model_input_names"].get<std::vector<std::string>>()
                                   : facts.model_input_names;
  const auto flag = [&](const char* key) {
    return config.contains(key) && config[key].is_boolean() && config[key].get<bool>();
  };
  settings.clean_up_tokenization_spaces = flag("clean_up_tokenization_spaces");
  settings.clean_up_bpe =
      flag("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output");
  settings.split_special_tokens = flag("split_special_tokens");
}

/// Which tokens of added_tokens.json are special ones. As in transformers, those named only in
/// special_tokens_map.json's additional_special_tokens are not.
std::unordered_set<std::string> special_texts(const TokenizerSettings& settings) {
  std::unordered_set<std::string> texts;
  for (const auto& [name, token] : settings.special_tokens) texts.insert(token);
  for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
    const auto list = settings.raw.value(key, json());
    if (!list.is_array()) continue;
    for (const auto& token : list) texts.insert(token_text(token));
  }
  return texts;
}

/// The id of an entry of added_tokens_decoder.
int64_t token_number(const std::string& text) {
  int64_t number = 0;
  const auto* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end) return number;
  throw Error("G-TEXT-2", ErrorKind::model,
              "cannot use tokenizer_config.json: added_tokens_decoder has the key \"" +
                  text.substr(0, 80) + "\", expected the number of a token",
              "Fetch or save the tokenizer again.");
}

/// Added tokens the folder lists, ordered by id.
std::vector<json> listed_tokens(const json& config, const json& added_tokens,
                                const TokenizerSettings& settings) {
  std::map<int64_t, json> tokens;
  if (config.contains("added_tokens_decoder")) {
    for (const auto& [id, token] : config["added_tokens_decoder"].items())
      tokens[token_number(id)] = token_entry(token, false);
  } else if (added_tokens.is_object()) {
    const auto special_tokens = special_texts(settings);
    for (const auto& [text, id] : added_tokens.items()) {
      const bool special = special_tokens.contains(text);
      tokens[id.get<int64_t>()] = {
          {"content", text}, {"special", special}, {"normalized", !special}};
    }
  }
  std::vector<json> ordered;
  for (auto& [id, token] : tokens) ordered.push_back(std::move(token));
  return ordered;
}

/// Adds what the folder names and the backend does not have as an added token yet.
void add_missing_tokens(Backend& backend, const json& config, const json& added_tokens,
                        const TokenizerSettings& settings) {
  std::unordered_set<std::string> there;
  for (const auto& token : backend.added_tokens())
    there.insert(token["content"].get<std::string>());
  auto missing = json::array();
  const auto add = [&](json entry) {
    const auto text = entry["content"].get<std::string>();
    if (text.empty() || !there.insert(text).second) return;
    missing.push_back(std::move(entry));
  };
  for (auto& token : listed_tokens(config, added_tokens, settings)) add(std::move(token));
  for (const auto& [name, text] : settings.special_tokens) {
    const auto entry = config.value(name, json());
    add(entry.is_object() ? token_entry(entry, true) : special_token_entry(text));
  }
  for (const auto& text : settings.extra_special_tokens) add(special_token_entry(text));
  if (!missing.empty()) backend.add_tokens(missing);
}

[[noreturn]] void throw_no_tokenizer(const std::filesystem::path& directory) {
  const bool folder = std::filesystem::is_directory(directory);
  throw Error(
      "G-TEXT-2", ErrorKind::model,
      "cannot load a tokenizer from " + directory.string() + ": " +
          (folder ? "there is no tokenizer.json in it" : "it is not a folder"),
      folder
          ? "Save the tokenizer with transformers' "
            "AutoTokenizer.from_pretrained(...).save_pretrained(folder); it writes tokenizer.json."
          : "Give the folder of a model, or use Tokenizer::from_file for a tokenizer.json.");
}

}  // namespace

const std::string* TokenizerSettings::find_special(std::string_view name) const {
  for (const auto& [key, text] : special_tokens) {
    if (key == name) return &text;
  }
  return nullptr;
}

void TokenizerSettings::set_special(const std::string& name, std::string token) {
  for (auto& [key, text] : special_tokens) {
    if (key == name) {
      text = std::move(token);
      return;
    }
  }
  special_tokens.emplace_back(name, std::move(token));
  const auto rank = [](const auto& entry) {
    return std::find(kNamedTokens.begin(), kNamedTokens.end(), entry.first) - kNamedTokens.begin();
  };
  std::stable_sort(special_tokens.begin(), special_tokens.end(),
                   [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
}

bool TokenizerSettings::takes(std::string_view input_name) const {
  return std::find(model_input_names.begin(), model_input_names.end(), input_name) !=
         model_input_names.end();
}

json special_token_entry(const std::string& content) {
  return {{"content", content}, {"special", true}, {"normalized", false}};
}

std::pair<std::unique_ptr<Backend>, TokenizerSettings> load_tokenizer_folder(
    const std::filesystem::path& directory, const json& changes) {
  const auto file = directory / "tokenizer.json";
  if (!std::filesystem::exists(file)) throw_no_tokenizer(directory);
  json baked;
  auto backend = Backend::from_json(read_file(file), file.string(), baked);
  auto raw = read_if_there(directory / "tokenizer_config.json");
  if (changes.is_object()) {
    if (!raw.is_object()) raw = json::object();
    raw.update(changes);
  }
  TokenizerSettings settings;
  try {
    const auto model_config = read_if_there(directory / "config.json");
    settings.tokenizer_class = pick_tokenizer_class(model_config, raw, *backend);
    const auto facts = facts_of_class(settings.tokenizer_class);
    const auto config = merged_config(raw, read_if_there(directory / "special_tokens_map.json"));
    settings.raw = raw.is_object() ? raw : json::object();
    read_special_tokens(config, facts, settings);
    read_general(config, baked, facts, settings);
    read_chat_templates(directory, config, settings);
    rebuild_pipeline(*backend, settings.tokenizer_class, config);
    add_missing_tokens(*backend, config, read_if_there(directory / "added_tokens.json"), settings);
    rebuild_post_processor(*backend, settings);
  } catch (const json::exception& error) {
    throw Error("G-TEXT-2", ErrorKind::model,
                "cannot use the tokenizer files in " + directory.string() + ": " + error.what(),
                "tokenizer_config.json, special_tokens_map.json and added_tokens.json must have "
                "the form transformers writes.");
  }
  return {std::move(backend), std::move(settings)};
}

std::string tokenizer_config_text(const TokenizerSettings& settings) {
  auto config = settings.raw;
  for (const char* key :
       {"added_tokens_decoder", "additional_special_tokens", "chat_template", "tokenizer_file",
        "vocab_file", "merges_file", "name_or_path", "special_tokens_map_file", "add_bos_token",
        "add_eos_token", "device_map", "slow_tokenizer_class"}) {
    config.erase(key);
  }
  config["backend"] = "tokenizers";
  config["tokenizer_class"] = settings.tokenizer_class;
  config["model_input_names"] = settings.model_input_names;
  config["padding_side"] = settings.padding_side == PaddingSide::left ? "left" : "right";
  config["truncation_side"] = settings.truncation_side == PaddingSide::left ? "left" : "right";
  config["clean_up_tokenization_spaces"] = settings.clean_up_tokenization_spaces;
  for (const char* name : kNamedTokens) {
    if (config.contains(name) && settings.find_special(name) == nullptr) config[name] = nullptr;
  }
  for (const auto& [name, text] : settings.special_tokens) config[name] = text;
  if (!settings.extra_special_tokens.empty())
    config["extra_special_tokens"] = settings.extra_special_tokens;
  const std::string placeholder = "\u0001length\u0001";
  config["model_max_length"] =
      settings.model_max_length ? json(*settings.model_max_length) : json(placeholder);
  auto text = config.dump(2) + "\n";
  const auto quoted = json(placeholder).dump();
  if (const auto at = text.find(quoted); at != std::string::npos)
    text.replace(at, quoted.size(), kUnknownLength);
  return text;
}

}  // namespace gradus::text
