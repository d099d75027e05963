#pragma once

#include <gradus/data/tokenizer_like.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/backend.h"

namespace gradus::text {

/// What a model folder says about its tokenizer beside tokenizer.json.
struct TokenizerSettings {
  std::string tokenizer_class = "TokenizersBackend";
  /// Name ("pad_token") and text, in transformers' order; extra ones of the model behind.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  std::vector<std::string> extra_special_tokens;
  PaddingSide padding_side = PaddingSide::right;
  PaddingSide truncation_side = PaddingSide::right;
  std::optional<int64_t> model_max_length;
  std::vector<std::string> model_input_names = {"input_ids", "attention_mask"};
  bool clean_up_tokenization_spaces = false;
  bool clean_up_bpe = false;
  bool split_special_tokens = false;
  int64_t pad_token_type_id = 0;
  std::map<std::string, std::string> chat_templates;  ///< "default" is the only one most have
  /// tokenizer_config.json as read, for what is written back unchanged.
  nlohmann::json raw = nlohmann::json::object();

  const std::string* find_special(std::string_view name) const;
  void set_special(const std::string& name, std::string token);
  bool takes(std::string_view input_name) const;
};

/// The backend of a folder, and its settings. `changes`, where it is an object, replace keys of
/// tokenizer_config.json. Throws G-TEXT-2, G-IO-1, G-JSON-1.
std::pair<std::unique_ptr<Backend>, TokenizerSettings> load_tokenizer_folder(
    const std::filesystem::path& directory, const nlohmann::json& changes = nullptr);

/// tokenizer_config.json as transformers writes it.
std::string tokenizer_config_text(const TokenizerSettings& settings);

/// An entry of tokenizer.json's "added_tokens" for a plain special token.
nlohmann::json special_token_entry(const std::string& content);

}  // namespace gradus::text
