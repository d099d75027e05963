#include <gradus/core/error.h>
#include <gradus/data/padding.h>

#include "data/column_collate.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>

namespace gradus {
namespace {

int64_t round_up(int64_t length, std::optional<int64_t> multiple) {
  if (!multiple || *multiple < 1) return length;
  return (length + *multiple - 1) / *multiple * *multiple;
}

int64_t longest(std::span<const std::span<const int64_t>> lists) {
  size_t length = 0;
  for (const auto list : lists) length = std::max(length, list.size());
  return static_cast<int64_t>(length);
}

/// The width all rows get; nothing when they stay as they are.
std::optional<int64_t> target_width(const data::IntLists& ids, const TokenizerLike& tokenizer,
                                    const PaddingOptions& options) {
  if (options.padding == PaddingStrategy::do_not_pad) return std::nullopt;
  if (!tokenizer.pad_token_id()) {
    throw Error("G-DATA-13", ErrorKind::data,
                "padding was requested, but the tokenizer has no padding token",
                "Set one (the end-of-text token is a common choice), or bring all rows to one "
                "length and use default_data_collator.");
  }
  if (options.padding == PaddingStrategy::longest)
    return round_up(longest(ids.lists()), options.pad_to_multiple_of);
  const auto length = options.max_length ? options.max_length : tokenizer.model_max_length();
  if (!length) return std::nullopt;  // the model takes any length
  return round_up(*length, options.pad_to_multiple_of);
}

/// Whether rows bring a mask with more than one dimension, which is not ours to fill up.
bool has_square_mask(const Example& row) {
  const auto* mask = row.find("attention_mask");
  return mask != nullptr && mask->is_tensor() && mask->tensor().dim() > 1;
}

void check_equal(const data::IntLists& lists, std::string_view name, std::optional<int64_t> width) {
  const auto expected = std::max<size_t>(lists[0].size(), static_cast<size_t>(width.value_or(0)));
  for (size_t row = 0; row < lists.size(); ++row) {
    const size_t length =
        std::max<size_t>(lists[row].size(), static_cast<size_t>(width.value_or(0)));
    if (length == expected) continue;
    throw Error(
        "G-DATA-7", ErrorKind::data,
        fmt::format(
            "column '{}' cannot be stacked: row {} of the batch has {} values, the first row {}",
            name, row, length, expected),
        width ? "Rows longer than max_length are not cut here: truncate them when you tokenize."
              : "Rows of different length need padding: set padding to longest or max_length.");
  }
}

torch::Tensor ones_for(const data::IntLists& ids, const TokenizerLike& tokenizer, int64_t width) {
  auto mask = at::zeros({static_cast<int64_t>(ids.size()), width}, at::kLong);
  for (size_t row = 0; row < ids.size(); ++row) {
    const auto length = static_cast<int64_t>(ids[row].size());
    const int64_t begin = tokenizer.padding_side() == PaddingSide::left ? width - length : 0;
    std::fill_n(mask.data_ptr<int64_t>() + static_cast<int64_t>(row) * width + begin, length, 1);
  }
  return mask;
}

}  // namespace

torch::Tensor pad_lists(std::span<const std::span<const int64_t>> lists, int64_t value,
                        PaddingSide side, std::optional<int64_t> pad_to_multiple_of,
                        int64_t width) {
  width = round_up(std::max(width, longest(lists)), pad_to_multiple_of);
  auto result = at::empty({static_cast<int64_t>(lists.size()), width}, at::kLong);
  auto* to = result.data_ptr<int64_t>();
  for (const auto list : lists) {
    const auto fill = static_cast<size_t>(width) - list.size();
    if (side == PaddingSide::left) to = std::fill_n(to, fill, value);
    to = std::copy(list.begin(), list.end(), to);
    if (side == PaddingSide::right) to = std::fill_n(to, fill, value);
  }
  return result;
}

Batch pad_rows(const std::vector<Example>& rows, const TokenizerLike& tokenizer,
               const PaddingOptions& options) {
  Batch batch;
  if (rows.empty()) return batch;
  const data::IntLists ids(rows, "input_ids");
  const auto width = target_width(ids, tokenizer, options);
  check_equal(ids, "input_ids", width);
  const auto padded = [&](const data::IntLists& lists, std::string_view name, int64_t value) {
    check_equal(lists, name, width);
    return pad_lists(lists.lists(), value, tokenizer.padding_side(), std::nullopt,
                     width.value_or(0));
  };
  const bool square_mask = has_square_mask(rows.front());
  size_t place = 0;
  for (const auto& [name, value] : rows.front()) {
    const size_t here = place++;
    if (name == "input_ids")
      batch.set(name, padded(ids, name, tokenizer.pad_token_id().value_or(0)));
    else if (name == "attention_mask" && square_mask)
      continue;
    else if (name == "attention_mask")
      batch.set(name, padded(data::IntLists(rows, name), name, 0));
    else if (name == "token_type_ids")
      batch.set(name, padded(data::IntLists(rows, name), name, tokenizer.pad_token_type_id()));
    else if (name == "special_tokens_mask")
      batch.set(name, padded(data::IntLists(rows, name), name, 1));
    else
      batch.set(name, data::collate_column(rows, name, here));
  }
  if (square_mask) batch.set("attention_mask", data::collate_column(rows, "attention_mask"));
  if (!batch.contains("attention_mask")) {
    const auto names = tokenizer.model_input_names();
    if (std::find(names.begin(), names.end(), "attention_mask") != names.end())
      batch.set("attention_mask", ones_for(ids, tokenizer, batch["input_ids"].size(1)));
  }
  return batch;
}

}  // namespace gradus
