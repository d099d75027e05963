#pragma once

#include <gradus/data/batch.h>
#include <gradus/data/example.h>
#include <gradus/data/tokenizer_like.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace gradus {

/// How far rows are filled up.
enum class PaddingStrategy {
  longest,     ///< to the longest row of the batch (`padding=True`)
  max_length,  ///< to `max_length`, or what the model takes at most
  do_not_pad,  ///< not at all; rows must be equally long
};

struct PaddingOptions {
  PaddingStrategy padding = PaddingStrategy::longest;
  std::optional<int64_t> max_length = {};
  std::optional<int64_t> pad_to_multiple_of = {};
};

/// `tokenizer.pad(rows, return_tensors="pt")`: `input_ids`, `attention_mask`, `token_type_ids` and
/// `special_tokens_mask` are filled up on the tokenizer's side; an attention mask is made where
/// rows have none; other columns are stacked. Throws G-DATA-13 when padding is asked for and the
/// tokenizer has no padding token, G-DATA-7 when lengths differ.
Batch pad_rows(const std::vector<Example>& rows, const TokenizerLike& tokenizer,
               const PaddingOptions& options = {});

/// Lists of integers as one int64 tensor `[lists, longest]`, filled up with `value`. `width` makes
/// it wider than that.
torch::Tensor pad_lists(std::span<const std::span<const int64_t>> lists, int64_t value,
                        PaddingSide side = PaddingSide::right,
                        std::optional<int64_t> pad_to_multiple_of = std::nullopt,
                        int64_t width = 0);

}  // namespace gradus
