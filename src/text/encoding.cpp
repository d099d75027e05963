#include <gradus/core/error.h>
#include <gradus/text/encoding.h>

#include <nlohmann/json.hpp>

namespace gradus {

namespace {

[[noreturn]] void throw_ids_only(const char* what) {
  throw Error("G-TEXT-4", ErrorKind::usage,
              std::string("this encoding has no ") + what + ": it was made with ids_only",
              "Leave out .ids_only in the EncodeOptions.");
}

Value nested_pairs(const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [begin, end] : pairs) list.push_back({begin, end});
  return Value::nested(std::move(list));
}

torch::Tensor row(const std::vector<int64_t>& values) {
  return torch::tensor(values, torch::kLong).unsqueeze(0);
}

}  // namespace

const std::vector<std::pair<int64_t, int64_t>>& Encoding::offsets() const {
  if (window_.offsets.size() != window_.ids.size()) throw_ids_only("offsets");
  return window_.offsets;
}

const std::vector<std::optional<int64_t>>& Encoding::word_ids() const {
  if (window_.word_ids.size() != window_.ids.size()) throw_ids_only("word ids");
  return window_.word_ids;
}

const std::vector<std::optional<int64_t>>& Encoding::sequence_ids() const {
  if (window_.sequence_ids.size() != window_.ids.size()) throw_ids_only("sequence ids");
  return window_.sequence_ids;
}

std::optional<int64_t> Encoding::char_to_token(int64_t position, int64_t sequence) const {
  const auto& places = offsets();
  const auto& sequences = sequence_ids();
  for (size_t i = 0; i < places.size(); ++i) {
    if (sequences[i] == sequence && places[i].first <= position && position < places[i].second)
      return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

std::optional<std::pair<int64_t, int64_t>> Encoding::word_to_tokens(int64_t word,
                                                                    int64_t sequence) const {
  const auto& words = word_ids();
  const auto& sequences = sequence_ids();
  std::optional<std::pair<int64_t, int64_t>> span;
  for (size_t i = 0; i < words.size(); ++i) {
    if (sequences[i] != sequence || words[i] != word) continue;
    const auto token = static_cast<int64_t>(i);
    span = {span ? span->first : token, token + 1};
  }
  return span;
}

Example Encoding::example() const {
  Example row;
  row.set("input_ids", Value(window_.ids));
  if (columns_.token_type_ids) row.set("token_type_ids", Value(window_.type_ids));
  if (columns_.attention_mask) row.set("attention_mask", Value(window_.attention_mask));
  if (columns_.special_tokens_mask)
    row.set("special_tokens_mask", Value(window_.special_tokens_mask));
  if (columns_.offset_mapping) row.set("offset_mapping", nested_pairs(offsets()));
  if (columns_.length) row.set("length", Value(size()));
  if (!assistant_masks_.empty()) row.set("assistant_masks", Value(assistant_masks_));
  return row;
}

Batch Encoding::batch() const {
  Batch batch;
  batch.set("input_ids", row(window_.ids));
  if (columns_.token_type_ids) batch.set("token_type_ids", row(window_.type_ids));
  if (columns_.attention_mask) batch.set("attention_mask", row(window_.attention_mask));
  if (columns_.special_tokens_mask)
    batch.set("special_tokens_mask", row(window_.special_tokens_mask));
  if (!assistant_masks_.empty()) batch.set("assistant_masks", row(assistant_masks_));
  return batch;
}

}  // namespace gradus
