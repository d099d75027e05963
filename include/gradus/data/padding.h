#pragma once

#include <gradus/data/batch.h>
#include <gradus/data/example.h>
#include <gradus/data/tokenizer_like.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace gradus {

/// How far rows are padded.
enum class PaddingStrategy {
  longest,     ///< To the longest row of the batch (`padding=True` in transformers).
  max_length,  ///< To `max_length`, or to the longest input the model takes.
  do_not_pad,  ///< Not at all; all rows must have the same length.
};

/// Options of `pad_rows`.
struct PaddingOptions {
  PaddingStrategy padding = PaddingStrategy::longest;  ///< How far rows are padded.
  std::optional<int64_t> max_length = {};              ///< For `PaddingStrategy::max_length`.
  std::optional<int64_t> pad_to_multiple_of = {};      ///< Rounds the padded length up.
};

/// Pads and stacks rows, as `tokenizer.pad(rows, return_tensors="pt")` does in transformers.
///
/// `input_ids`, `attention_mask`, `token_type_ids` and `special_tokens_mask` are padded on the
/// tokenizer's side. Rows without an attention mask get one. Other columns are stacked. Throws
/// `Error` G-DATA-13 when rows need padding and the tokenizer has no padding token, and G-DATA-7
/// when lengths differ.
Batch pad_rows(const std::vector<Example>& rows, const TokenizerLike& tokenizer,
               const PaddingOptions& options = {});

/// Makes one int64 tensor `[lists, longest]` of lists of integers, padded with `value`. It has at
/// least `width` columns.
torch::Tensor pad_lists(std::span<const std::span<const int64_t>> lists, int64_t value,
                        PaddingSide side = PaddingSide::right,
                        std::optional<int64_t> pad_to_multiple_of = std::nullopt,
                        int64_t width = 0);

}  // namespace gradus
