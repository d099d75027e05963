#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "text/backend.h"

namespace gradus::text {

struct TokenizerSettings;

/// What a tokenizer class of transformers brings along when the folder does not say it.
struct ClassFacts {
  std::string name;
  std::vector<std::pair<std::string, std::string>> special_tokens;
  std::vector<std::string> model_input_names = {"input_ids", "attention_mask"};
  bool pads_left = false;
};

/// The class `AutoTokenizer` takes for a folder. `config` and `tokenizer_config` may be null.
std::string pick_tokenizer_class(const nlohmann::json& config,
                                 const nlohmann::json& tokenizer_config, const Backend& backend);

/// Facts of a class; those of the general class when the name is not known.
ClassFacts facts_of_class(const std::string& name);

/// Some classes build their pipeline anew from tokenizer_config.json instead of taking the one in
/// tokenizer.json. Call before the special tokens are added.
void rebuild_pipeline(Backend& backend, const std::string& name,
                      const nlohmann::json& tokenizer_config);
/// The part that needs the ids of the special tokens. Call after they were added.
void rebuild_post_processor(Backend& backend, const TokenizerSettings& settings);

}  // namespace gradus::text
