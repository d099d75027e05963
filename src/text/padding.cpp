#include <gradus/core/error.h>

#include <algorithm>

#include "text/tokenizer_impl.h"

namespace gradus {

namespace text {

namespace {

constexpr int64_t kLongestPadded = int64_t{1} << 24;

template <class T>
void fill(std::vector<T>& values, size_t missing, PaddingSide side, const T& value) {
  values.insert(side == PaddingSide::left ? values.begin() : values.end(), missing, value);
}

}  // namespace

void pad_window(EncodingWindow& window, int64_t length, PaddingSide side, int64_t pad_id,
                int64_t pad_type_id) {
  const auto missing = length - static_cast<int64_t>(window.ids.size());
  if (missing <= 0) return;
  const auto count = static_cast<size_t>(missing);
  const bool details = window.offsets.size() == window.ids.size();  // an empty text has them too
  fill(window.ids, count, side, pad_id);
  fill(window.type_ids, count, side, pad_type_id);
  fill<int64_t>(window.attention_mask, count, side, 0);
  fill<int64_t>(window.special_tokens_mask, count, side, 1);
  if (!details) return;
  fill(window.offsets, count, side, std::pair<int64_t, int64_t>(0, 0));
  fill(window.word_ids, count, side, std::optional<int64_t>());
  fill(window.sequence_ids, count, side, std::optional<int64_t>());
}

std::optional<int64_t> padded_length(Padding::Strategy strategy, int64_t longest,
                                     std::optional<int64_t> max_length,
                                     std::optional<int64_t> multiple) {
  if (strategy == Padding::Strategy::none) return std::nullopt;
  auto length = strategy == Padding::Strategy::max_length ? max_length.value_or(longest) : longest;
  if (multiple && *multiple > 0 && length % *multiple != 0)
    length = (length / *multiple + 1) * *multiple;
  if (length > std::max(longest, kLongestPadded) || length < 0)
    throw Error("G-TEXT-10", ErrorKind::usage,
                "asked to pad to " + std::to_string(length) + " tokens, at most " +
                    std::to_string(kLongestPadded) + " are allowed",
                "Give max_length; the tokenizer's own model_max_length may be absurd.");
  return length;
}

}  // namespace text

namespace {

using Columns = std::vector<std::pair<std::string, std::vector<std::vector<int64_t>>>>;

[[noreturn]] void throw_cannot_pad(const std::string& why) {
  throw Error("G-TEXT-10", ErrorKind::data, "cannot pad these rows: " + why,
              "Rows need a list of integers in input_ids; keep other columns (text, labels of "
              "other lengths) out, or use a collator that knows them.");
}

std::vector<int64_t> ints_of(const Value& value, const std::string& name) {
  if (value.is_ints()) return value.ints();
  if (value.is_tensor() && value.tensor().dim() == 1) {
    const auto row = value.tensor().to(torch::kCPU, torch::kLong).contiguous();
    return {row.const_data_ptr<int64_t>(), row.const_data_ptr<int64_t>() + row.numel()};
  }
  throw_cannot_pad("column " + name + " holds " + value.type_name() +
                   ", expected a list of integers");
}

Columns columns_of(const std::vector<Example>& rows, const std::string& main, bool want_mask) {
  if (rows.empty()) throw_cannot_pad("there are none");
  if (!rows[0].contains(main)) throw_cannot_pad("there is no column " + main);
  Columns columns;
  for (const auto& name : rows[0].names()) {
    columns.emplace_back(name, std::vector<std::vector<int64_t>>());
    for (const auto& row : rows) columns.back().second.push_back(ints_of(row.at(name), name));
  }
  if (want_mask && !rows[0].contains("attention_mask")) {
    columns.emplace_back("attention_mask", std::vector<std::vector<int64_t>>());
    for (const auto& row : rows)
      columns.back().second.emplace_back(ints_of(row.at(main), main).size(), 1);
  }
  return columns;
}

/// What a column is filled up with; nothing for columns transformers leaves alone.
std::optional<int64_t> filler(const std::string& name, const std::string& main,
                              const Tokenizer& tokenizer, bool want_mask) {
  if (name == main) return tokenizer.pad_token_id();
  if (name == "attention_mask" && want_mask) return 0;
  if (name == "token_type_ids") return tokenizer.pad_token_type_id();
  if (name == "special_tokens_mask") return 1;
  return std::nullopt;
}

torch::Tensor stacked(const std::string& name, std::vector<std::vector<int64_t>>& rows) {
  const auto length = rows[0].size();
  std::vector<int64_t> flat;
  flat.reserve(length * rows.size());
  for (const auto& row : rows) {
    if (row.size() != length)
      throw_cannot_pad("column " + name + " has rows of " + std::to_string(length) + " and of " +
                       std::to_string(row.size()) + " values");
    flat.insert(flat.end(), row.begin(), row.end());
  }
  return torch::tensor(flat, torch::kLong)
      .reshape({static_cast<int64_t>(rows.size()), static_cast<int64_t>(length)});
}

}  // namespace

Batch Tokenizer::pad(const std::vector<Example>& rows, const PadOptions& options) const {
  const auto main = impl_->settings.model_input_names.empty()
                        ? std::string("input_ids")
                        : impl_->settings.model_input_names[0];
  const bool want_mask =
      options.return_attention_mask.value_or(impl_->settings.takes("attention_mask"));
  auto columns = columns_of(rows, main, want_mask);
  auto strategy = options.padding.strategy();
  auto max_length = options.max_length;
  if (strategy == Padding::Strategy::max_length && !max_length)
    max_length = impl_->settings.model_max_length;
  if (strategy == Padding::Strategy::max_length && !max_length) strategy = Padding::Strategy::none;
  if (strategy != Padding::Strategy::none && !pad_token_id()) {
    throw Error("G-TEXT-10", ErrorKind::usage,
                "asked to pad, but the tokenizer has no padding token",
                "Give it one: set_special_token(\"pad_token\", …) for a token it has, or "
                "add_special_tokens({{\"pad_token\", \"[PAD]\"}}).");
  }
  size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, ints_of(row.at(main), main).size());
  const auto length = text::padded_length(strategy, static_cast<int64_t>(longest), max_length,
                                          options.pad_to_multiple_of);
  const auto side = options.padding_side.value_or(padding_side());
  Batch batch;
  for (auto& [name, values] : columns) {
    const auto value = filler(name, main, *this, want_mask);
    for (auto& row : values) {
      const auto missing = length ? *length - static_cast<int64_t>(row.size()) : 0;
      if (value && missing > 0)
        row.insert(side == PaddingSide::left ? row.begin() : row.end(),
                   static_cast<size_t>(missing), *value);
    }
    batch.set(name, stacked(name, values));
  }
  return batch;
}

}  // namespace gradus
