// The part of Tokenizer that looks at tokens and settings.
#include <gradus/core/error.h>

#include <algorithm>
#include <unordered_set>

#include "text/tokenizer_impl.h"

namespace gradus {

std::optional<int64_t> Tokenizer::convert_tokens_to_ids(std::string_view token) const {
  if (const auto id = impl_->backend->token_to_id(token)) return id;
  const auto* unknown = impl_->settings.find_special("unk_token");
  return unknown == nullptr ? std::nullopt : impl_->backend->token_to_id(*unknown);
}

std::vector<std::optional<std::string>> Tokenizer::convert_ids_to_tokens(
    std::span<const int64_t> ids) const {
  std::vector<std::optional<std::string>> tokens;
  for (const auto id : ids) tokens.push_back(impl_->backend->id_to_token(id));
  return tokens;
}

std::optional<std::string> Tokenizer::id_to_token(int64_t id) const {
  return impl_->backend->id_to_token(id);
}

std::optional<std::string> Tokenizer::special_token(std::string_view name) const {
  const auto* text = impl_->settings.find_special(name);
  return text == nullptr ? std::nullopt : std::optional(*text);
}

std::optional<int64_t> Tokenizer::special_token_id(std::string_view name) const {
  const auto* text = impl_->settings.find_special(name);
  return text == nullptr ? std::nullopt : convert_tokens_to_ids(*text);
}

std::vector<std::string> Tokenizer::all_special_tokens() const {
  std::vector<std::string> tokens;
  std::unordered_set<std::string> seen;
  const auto add = [&](const std::string& token) {
    if (seen.insert(token).second) tokens.push_back(token);
  };
  for (const auto& [name, token] : impl_->settings.special_tokens) add(token);
  for (const auto& token : impl_->settings.extra_special_tokens) add(token);
  return tokens;
}

std::vector<int64_t> Tokenizer::all_special_ids() const {
  std::vector<int64_t> ids;
  std::unordered_set<int64_t> seen;
  for (const auto& token : all_special_tokens())
    if (const auto id = convert_tokens_to_ids(token); id && seen.insert(*id).second)
      ids.push_back(*id);
  return ids;
}

void Tokenizer::set_special_token(const std::string& name, const std::string& token) {
  if (!impl_->backend->token_to_id(token)) {
    throw Error("G-TEXT-5", ErrorKind::usage,
                "cannot make \"" + token + "\" the " + name + ": it is not in the vocabulary",
                "add_special_tokens adds it; the model's embeddings must then be resized.");
  }
  impl_->settings.set_special(name, token);
}

int64_t Tokenizer::add_special_tokens(const std::map<std::string, std::string>& tokens) {
  auto entries = nlohmann::json::array();
  for (const auto& [name, token] : tokens) entries.push_back(text::special_token_entry(token));
  const auto before = full_vocab_size();
  impl_->backend->add_tokens(entries);
  for (const auto& [name, token] : tokens) impl_->settings.set_special(name, token);
  return full_vocab_size() - before;
}

int64_t Tokenizer::add_tokens(const std::vector<std::string>& tokens, bool special) {
  auto entries = nlohmann::json::array();
  for (const auto& token : tokens)
    entries.push_back({{"content", token}, {"special", special}, {"normalized", !special}});
  const auto before = full_vocab_size();
  impl_->backend->add_tokens(entries);
  return full_vocab_size() - before;
}

int64_t Tokenizer::vocab_size() const { return impl_->backend->vocab_size(false); }

int64_t Tokenizer::full_vocab_size() const { return impl_->backend->vocab_size(true); }

std::map<std::string, int64_t> Tokenizer::vocab() const {
  return impl_->backend->vocab().get<std::map<std::string, int64_t>>();
}

std::map<std::string, int64_t> Tokenizer::added_vocab() const {
  std::map<std::string, int64_t> tokens;
  for (const auto& token : impl_->backend->added_tokens())
    tokens[token["content"].get<std::string>()] = token["id"].get<int64_t>();
  return tokens;
}

int64_t Tokenizer::num_special_tokens_to_add(bool pair) const {
  return impl_->backend->special_tokens_to_add(pair);
}

PaddingSide Tokenizer::padding_side() const { return impl_->settings.padding_side; }

void Tokenizer::set_padding_side(PaddingSide side) { impl_->settings.padding_side = side; }

PaddingSide Tokenizer::truncation_side() const { return impl_->settings.truncation_side; }

void Tokenizer::set_truncation_side(PaddingSide side) { impl_->settings.truncation_side = side; }

std::optional<int64_t> Tokenizer::model_max_length() const {
  return impl_->settings.model_max_length;
}

void Tokenizer::set_model_max_length(std::optional<int64_t> length) {
  impl_->settings.model_max_length = length;
}

std::vector<std::string> Tokenizer::model_input_names() const {
  return impl_->settings.model_input_names;
}

const std::string& Tokenizer::tokenizer_class() const { return impl_->settings.tokenizer_class; }

}  // namespace gradus
