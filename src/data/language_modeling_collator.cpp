#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/collators.h>

#include "data/collate_random.h"
#include "data/column_collate.h"
#include "data/nested_tensor.h"
#include "data/random_order.h"

#include <ATen/ops/bernoulli.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gradus {
namespace {

[[noreturn]] void throw_masking(const std::string& message, const std::string& advice) {
  throw Error("G-DATA-14", ErrorKind::usage, message, advice);
}

void check_probability(const char* name, double value) {
  if (!(value >= 0 && value <= 1))
    throw_masking(fmt::format("{} is {}, expected a value from 0 to 1", name, value),
                  "Set a probability.");
}

/// bool: true at the tokenizer's special tokens.
torch::Tensor special_mask(const torch::Tensor& ids, const TokenizerLike& tokenizer) {
  auto special = tokenizer.all_special_ids();
  std::sort(special.begin(), special.end());
  auto mask = at::empty(ids.sizes(), at::kBool);
  const auto* from = ids.const_data_ptr<int64_t>();
  auto* to = mask.data_ptr<bool>();
  for (int64_t i = 0; i < ids.numel(); ++i)
    to[i] = std::binary_search(special.begin(), special.end(), from[i]);
  return mask;
}

/// Offsets `[rows, width, 2]`; rows shorter than the batch get zeros where the padding tokens are.
torch::Tensor collect_offsets(const std::vector<Example>& rows, int64_t width, PaddingSide side) {
  auto result = at::zeros({static_cast<int64_t>(rows.size()), width, 2}, at::kLong);
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto offsets = rows[row].at("offset_mapping").to_tensor().to(at::kLong);
    if (offsets.dim() != 2 || offsets.size(1) != 2 || offsets.size(0) > width) {
      throw Error("G-DATA-6", ErrorKind::data,
                  fmt::format("row {} of the batch has an 'offset_mapping' that is not a list of "
                              "(start, end) per token",
                              row),
                  "Tokenize with return_offsets_mapping.");
    }
    const int64_t begin = side == PaddingSide::left ? width - offsets.size(0) : 0;
    result[static_cast<int64_t>(row)].slice(0, begin, begin + offsets.size(0)).copy_(offsets);
  }
  return result;
}

std::vector<Example> without_offsets(std::vector<Example> rows) {
  for (auto& row : rows) row.erase("offset_mapping");
  return rows;
}

}  // namespace

DataCollatorForLanguageModeling::DataCollatorForLanguageModeling(
    DataCollatorForLanguageModelingOptions options)
    : options_(std::move(options)) {
  if (!options_.tokenizer)
    throw Error("G-DATA-13", ErrorKind::usage, "a collator that pads was made without a tokenizer",
                "Set .tokenizer in its options.");
  if (options_.mlm && !options_.tokenizer->mask_token_id()) {
    throw_masking("the tokenizer has no mask token, which masked language modelling needs",
                  "Set .mlm = false for causal language modelling.");
  }
  if (options_.mlm) check_probability("mlm_probability", options_.mlm_probability);
  if (!options_.mlm && options_.whole_word_mask)
    throw_masking("whole_word_mask is set without mlm", "Set .mlm = true to mask whole words.");
  check_probability("mask_replace_prob", options_.mask_replace_prob);
  check_probability("random_replace_prob", options_.random_replace_prob);
  if (options_.mask_replace_prob + options_.random_replace_prob > 1) {
    throw_masking(fmt::format("mask_replace_prob {} and random_replace_prob {} have a sum above 1",
                              options_.mask_replace_prob, options_.random_replace_prob),
                  "What remains up to 1 is left unchanged.");
  }
  if (options_.whole_word_mask && options_.mask_replace_prob < 1) {
    log_warning_once(
        "Random token replacement is not supported with whole word masking. Setting "
        "mask_replace_prob to 1.");
    options_.mask_replace_prob = 1;
    options_.random_replace_prob = 0;
  }
}

Batch DataCollatorForLanguageModeling::operator()(std::vector<Example> rows) const {
  if (rows.empty()) return {};
  const auto& tokenizer = *options_.tokenizer;
  const bool has_offsets = rows.front().contains("offset_mapping");
  auto batch = pad_rows(has_offsets ? without_offsets(rows) : rows, tokenizer,
                        {.pad_to_multiple_of = options_.pad_to_multiple_of});
  const auto special = batch.pop_or_undefined("special_tokens_mask");
  if (!options_.mlm) {
    auto labels = batch["input_ids"].clone();
    if (const auto pad = tokenizer.pad_token_id()) labels.masked_fill_(labels == *pad, -100);
    batch.set("labels", std::move(labels));
    return batch;
  }
  if (options_.whole_word_mask && !has_offsets) {
    throw Error("G-DATA-1", ErrorKind::data,
                "whole_word_mask needs the column 'offset_mapping', which the rows do not have",
                "Tokenize with return_offsets_mapping and set remove_unused_columns to false.");
  }
  const auto offsets = options_.whole_word_mask ? collect_offsets(rows, batch["input_ids"].size(1),
                                                                  tokenizer.padding_side())
                                                : torch::Tensor();
  mask_tokens(
      batch,
      special.defined() ? special.to(at::kBool) : special_mask(batch["input_ids"], tokenizer),
      offsets);
  return batch;
}

void DataCollatorForLanguageModeling::mask_tokens(Batch& batch,
                                                  const torch::Tensor& special_tokens_mask,
                                                  const torch::Tensor& offsets) const {
  auto generator = data::batch_generator(options_.seed);
  auto inputs = batch["input_ids"].clone();
  const auto draw = [&](double probability) {
    return at::bernoulli(at::full(inputs.sizes(), probability, at::kFloat), generator)
        .to(at::kBool);
  };

  auto blocked = special_tokens_mask;
  torch::Tensor words;
  if (options_.whole_word_mask) {
    auto [ids, prob_mask] = word_ids(offsets, special_tokens_mask);
    words = std::move(ids);
    blocked = std::move(prob_mask);
  }
  const auto probability =
      at::full(inputs.sizes(), options_.mlm_probability, at::kFloat).masked_fill_(blocked, 0.0);
  auto masked = at::bernoulli(probability, generator).to(at::kBool);
  if (words.defined()) masked = whole_words(words, masked);

  batch.set("labels", inputs.masked_fill(~masked, -100));
  const auto replaced = draw(options_.mask_replace_prob) & masked;
  inputs.masked_fill_(replaced, *options_.tokenizer->mask_token_id());
  if (options_.mask_replace_prob < 1 && options_.random_replace_prob > 0) {
    const auto random =
        draw(options_.random_replace_prob / (1 - options_.mask_replace_prob)) & masked & ~replaced;
    const auto tokens =
        at::randint(options_.tokenizer->full_vocab_size(), inputs.sizes(), generator, at::kLong);
    inputs = at::where(random, tokens, inputs);
  }
  batch.set("input_ids", std::move(inputs));
}

DataCollatorForLanguageModeling::Words DataCollatorForLanguageModeling::word_ids(
    const torch::Tensor& offsets, const torch::Tensor& special_tokens_mask) {
  const auto special = special_tokens_mask.to(at::kBool);
  const auto starts = offsets.select(2, 0);
  auto previous_ends = offsets.select(2, 1).roll(1, 1);
  previous_ends.select(1, 0).fill_(-1);
  auto previous_special = special.roll(1, 1);
  previous_special.select(1, 0).fill_(false);
  const auto new_word = ~special & ((starts != previous_ends) | previous_special);
  return {at::cumsum(new_word, 1).masked_fill(special, -1), ~new_word};
}

torch::Tensor DataCollatorForLanguageModeling::whole_words(const torch::Tensor& word_ids,
                                                           const torch::Tensor& mask) {
  const auto valid = word_ids != -1;
  const auto same =
      (word_ids.unsqueeze(2) == word_ids.unsqueeze(1)) & valid.unsqueeze(2) & valid.unsqueeze(1);
  return (same & mask.unsqueeze(1)).any(2);
}

DataCollatorForPermutationLanguageModeling::DataCollatorForPermutationLanguageModeling(
    DataCollatorForPermutationLanguageModelingOptions options)
    : options_(std::move(options)) {
  if (!options_.tokenizer)
    throw Error("G-DATA-13", ErrorKind::usage, "a collator that pads was made without a tokenizer",
                "Set .tokenizer in its options.");
  if (!options_.tokenizer->mask_token_id())
    throw_masking("the tokenizer has no mask token, which permutation language modelling needs",
                  "Add a mask token to the tokenizer.");
  if (!(options_.plm_probability > 0 && options_.plm_probability <= 1) ||
      options_.max_span_length < 1) {
    throw_masking(fmt::format("plm_probability is {} and max_span_length {}",
                              options_.plm_probability, options_.max_span_length),
                  "The probability is above 0 and at most 1, the span at least 1.");
  }
}

Batch DataCollatorForPermutationLanguageModeling::operator()(std::vector<Example> rows) const {
  if (rows.empty()) return {};
  const auto& tokenizer = *options_.tokenizer;
  const data::IntLists ids(rows, "input_ids");
  const bool equal = std::all_of(ids.lists().begin(), ids.lists().end(),
                                 [&](const auto list) { return list.size() == ids[0].size(); });
  if (!equal && !tokenizer.pad_token_id())
    throw Error("G-DATA-13", ErrorKind::data,
                "rows of different length, but the tokenizer has no padding token",
                "Set one, or bring all rows to one length.");
  auto inputs =
      pad_lists(ids.lists(), tokenizer.pad_token_id().value_or(0), tokenizer.padding_side());
  const int64_t length = inputs.size(1);
  if (length % 2 != 0)
    throw_masking(
        fmt::format("permutation language modelling got rows of {} tokens, expected an even number",
                    length),
        "Pad or cut rows to an even length, so that the two halves of a permutation are equal.");

  data::TorchRandom random(data::batch_seed(options_.seed));
  const auto below = [&](int64_t count) {
    return static_cast<int64_t>(random.next() % static_cast<uint32_t>(count));
  };
  auto masked = at::zeros(inputs.sizes(), at::kBool);
  for (int64_t row = 0; row < inputs.size(0); ++row) {
    for (int64_t place = 0; place < length;) {
      const int64_t span = 1 + below(options_.max_span_length);
      const auto context =
          static_cast<int64_t>(static_cast<double>(span) / options_.plm_probability);
      const int64_t start = place + below(context - span + 1);
      if (start < length) masked[row].slice(0, start, std::min(length, start + span)).fill_(true);
      place += context;
    }
  }
  const auto special = special_mask(inputs, tokenizer);
  const auto padding =
      tokenizer.pad_token_id() ? inputs == *tokenizer.pad_token_id() : at::zeros_like(special);
  masked.masked_fill_(special | padding, false);
  const auto functional = ~(padding | special);
  auto labels = inputs.masked_fill(~masked, -100);
  inputs.masked_fill_(masked, *tokenizer.mask_token_id());

  auto perm_mask = at::zeros({inputs.size(0), length, length}, at::kFloat);
  for (int64_t row = 0; row < inputs.size(0); ++row) {
    std::vector<int64_t> half(static_cast<size_t>(length / 2));
    for (size_t i = 0; i < half.size(); ++i) half[i] = static_cast<int64_t>(i);
    for (int64_t i = 0; i + 1 < length / 2; ++i)
      std::swap(half[static_cast<size_t>(i)], half[static_cast<size_t>(i + below(length / 2 - i))]);
    const auto first = torch::tensor(half, at::kLong);
    auto order = at::cat({first, first + length / 2});
    order.masked_fill_(~masked[row] & functional[row], -1);
    perm_mask[row].copy_((order.unsqueeze(1) <= order.unsqueeze(0)) & masked[row]);
  }
  const auto target_mapping =
      at::eye(length, at::kFloat).expand({inputs.size(0), length, length}).contiguous();
  return {{"input_ids", inputs},
          {"perm_mask", perm_mask},
          {"target_mapping", target_mapping},
          {"labels", labels}};
}

}  // namespace gradus
