#pragma once

#include <gradus/data/batch.h>
#include <gradus/data/data_loader.h>
#include <gradus/data/example.h>
#include <gradus/data/padding.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

// Each collator makes the same tensors as the class of that name in transformers or trl does for
// the same rows. A collator is a plain value that can be called, so each is a `DataCollator`.
// Thread-safety: several threads may call one at once.
//
// A collator that draws random numbers seeds its generator with its seed (default: the loader's),
// the epoch and the number of the batch. So a batch is the same for any number of workers and after
// a resume. In the first batch of the first epoch the generator is
// `torch.Generator().manual_seed(seed)`.

/// Stacks the rows column by column, as `transformers.default_data_collator` does.
///
/// The first row says which columns there are. `label` and `label_ids` become `labels` (int64 for
/// integers, float32 for floats); text and null columns are left out; numbers and lists become
/// tensors, tensors are stacked. Throws G-DATA-1 when a later row lacks a column, G-DATA-6 when a
/// value cannot be a tensor, G-DATA-7 when lengths differ.
Batch default_data_collator(std::vector<Example> rows);

/// Options of `DataCollatorWithPadding` and `DataCollatorForMultipleChoice`.
struct DataCollatorWithPaddingOptions {
  std::shared_ptr<const TokenizerLike> tokenizer = {};  ///< Says what to pad with. Required.
  PaddingStrategy padding = PaddingStrategy::longest;   ///< How far rows are padded.
  std::optional<int64_t> max_length = {};               ///< For `PaddingStrategy::max_length`.
  std::optional<int64_t> pad_to_multiple_of = {};       ///< Rounds the padded length up.
};

/// Pads the rows as `pad_rows` does and renames `label` and `label_ids` to `labels`.
class DataCollatorWithPadding {
 public:
  /// Throws `Error` G-DATA-13 without a tokenizer.
  explicit DataCollatorWithPadding(DataCollatorWithPaddingOptions options);
  /// The batch of these rows.
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorWithPaddingOptions options_;
};

/// Options of `DataCollatorForTokenClassification`.
struct DataCollatorForTokenClassificationOptions {
  std::shared_ptr<const TokenizerLike> tokenizer = {};  ///< Says what to pad with. Required.
  PaddingStrategy padding = PaddingStrategy::longest;   ///< How far rows are padded.
  std::optional<int64_t> max_length = {};               ///< For `PaddingStrategy::max_length`.
  std::optional<int64_t> pad_to_multiple_of = {};       ///< Rounds the padded length up.
  int64_t label_pad_token_id = -100;                    ///< What labels are padded with.
};

/// Pads the rows and, in the same way, their labels: one per token, in `label` or `labels`.
class DataCollatorForTokenClassification {
 public:
  /// Throws `Error` G-DATA-13 without a tokenizer.
  explicit DataCollatorForTokenClassification(DataCollatorForTokenClassificationOptions options);
  /// The batch of these rows.
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorForTokenClassificationOptions options_;
};

/// Takes rows whose columns hold one list per choice and makes tensors `[rows, choices, length]`.
/// `labels` is the number of the right choice.
class DataCollatorForMultipleChoice {
 public:
  /// Throws `Error` G-DATA-13 without a tokenizer.
  explicit DataCollatorForMultipleChoice(DataCollatorWithPaddingOptions options);
  /// The batch of these rows.
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorWithPaddingOptions options_;
};

/// Options of `DataCollatorForSeq2Seq`.
struct DataCollatorForSeq2SeqOptions {
  std::shared_ptr<const TokenizerLike> tokenizer = {};  ///< Says what to pad with. Required.
  /// The model's `prepare_decoder_input_ids_from_labels`, when it has one: fills
  /// `decoder_input_ids`.
  std::function<torch::Tensor(const torch::Tensor& labels)> prepare_decoder_input_ids = {};
  PaddingStrategy padding = PaddingStrategy::longest;  ///< How far rows are padded.
  std::optional<int64_t> max_length = {};              ///< For `PaddingStrategy::max_length`.
  std::optional<int64_t> pad_to_multiple_of = {};      ///< Rounds the padded lengths up.
  int64_t label_pad_token_id = -100;                   ///< What labels are padded with.
};

/// Pads inputs and labels, each to its own longest row. Rows without labels, or with null as
/// labels, make a batch without labels.
class DataCollatorForSeq2Seq {
 public:
  /// Throws `Error` G-DATA-13 without a tokenizer.
  explicit DataCollatorForSeq2Seq(DataCollatorForSeq2SeqOptions options);
  /// The batch of these rows.
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorForSeq2SeqOptions options_;
};

/// Options of `DataCollatorForLanguageModeling`.
struct DataCollatorForLanguageModelingOptions {
  std::shared_ptr<const TokenizerLike> tokenizer = {};  ///< Says what to pad and mask with.
  bool mlm = true;  ///< Masked language modelling; false is causal.
  /// Masks all tokens of a word. Rows need `offset_mapping`, and every masked token becomes the
  /// mask token.
  bool whole_word_mask = false;
  double mlm_probability = 0.15;     ///< Share of the tokens that are masked.
  double mask_replace_prob = 0.8;    ///< Share of the masked tokens that become the mask token.
  double random_replace_prob = 0.1;  ///< Share that become a random token. The others stay.
  std::optional<int64_t> pad_to_multiple_of = {};  ///< Rounds the padded length up.
  std::optional<int64_t> seed = {};                ///< Default: the loader's seed.
};

/// Makes batches for masked or causal language modelling. In causal batches the labels are the ids,
/// with -100 at padding tokens.
class DataCollatorForLanguageModeling {
 public:
  /// Throws `Error` G-DATA-14 for impossible probabilities and for a tokenizer without mask token.
  explicit DataCollatorForLanguageModeling(DataCollatorForLanguageModelingOptions options);
  /// The batch of these rows.
  Batch operator()(std::vector<Example> rows) const;

  /// The words of a batch, token by token.
  struct Words {
    torch::Tensor word_ids;   ///< The number of the word, int64; -1 at special tokens.
    torch::Tensor prob_mask;  ///< Bool; true where no mask may begin.
  };
  /// Which word each token belongs to, from character offsets `[rows, length, 2]`.
  static Words word_ids(const torch::Tensor& offsets, const torch::Tensor& special_tokens_mask);
  /// `mask` extended to all tokens of each word that it touches.
  static torch::Tensor whole_words(const torch::Tensor& word_ids, const torch::Tensor& mask);

 private:
  void mask_tokens(Batch& batch, const torch::Tensor& special_tokens_mask,
                   const torch::Tensor& offsets) const;

  DataCollatorForLanguageModelingOptions options_;
};

/// Options of `DataCollatorForPermutationLanguageModeling`.
struct DataCollatorForPermutationLanguageModelingOptions {
  std::shared_ptr<const TokenizerLike> tokenizer = {};  ///< Says what to pad and mask with.
  double plm_probability = 1.0 / 6;                     ///< Share of the tokens that are predicted.
  int64_t max_span_length = 5;                          ///< Longest run of predicted tokens.
  std::optional<int64_t> seed = {};                     ///< Default: the loader's seed.
};

/// Makes batches for XLNet's permutation language modelling. Throws `Error` G-DATA-14 without a
/// mask token and for an odd length.
class DataCollatorForPermutationLanguageModeling {
 public:
  /// Throws `Error` G-DATA-14 for options that cannot be used.
  explicit DataCollatorForPermutationLanguageModeling(
      DataCollatorForPermutationLanguageModelingOptions options);
  /// The batch of these rows.
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorForPermutationLanguageModelingOptions options_;
};

/// Options of `DataCollatorWithFlattening`.
struct DataCollatorWithFlatteningOptions {
  bool return_position_ids = true;        ///< Adds `position_ids` that restart at every row.
  int64_t separator_id = -100;            ///< Label of the first token of every row.
  bool return_flash_attn_kwargs = false;  ///< Adds `cu_seq_lens_*` and `max_length_*`.
  bool return_seq_idx = false;            ///< Adds `seq_idx`, the row of every token.
  int64_t position_ids_start = 0;         ///< First position of a row.
};

/// Joins all rows into one row `[1, tokens]` without padding. `max_length_q` and `max_length_k` are
/// tensors without dimensions.
class DataCollatorWithFlattening {
 public:
  /// A collator with these options, which are checked with the first batch.
  explicit DataCollatorWithFlattening(DataCollatorWithFlatteningOptions options = {})
      : options_(options) {}
  /// The batch of these rows.
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorWithFlatteningOptions options_;
};

/// Options of `DataCollatorForSft`.
struct DataCollatorForSftOptions {
  int64_t pad_token_id = 0;                        ///< What ids are padded with.
  bool padding_free = false;                       ///< Joins all rows into one instead of padding.
  bool return_position_ids = false;                ///< Adds `position_ids` to padded batches.
  std::optional<int64_t> pad_to_multiple_of = {};  ///< Rounds the padded length up.
};

/// The collator of trl's `SFTTrainer`, called `DataCollatorForLanguageModeling` there. It uses the
/// labels of the rows, or the ids when there are none. With `padding_free` a batch is one row, with
/// cu_seq_lens (int32), seq_idx, and position ids that restart at each sequence (and at each
/// `seq_lengths` of a packed row).
class DataCollatorForSft {
 public:
  /// A collator with these options, which are checked with the first batch.
  explicit DataCollatorForSft(DataCollatorForSftOptions options) : options_(options) {}
  /// The batch of these rows.
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorForSftOptions options_;
};

/// Which end of a sequence that is too long stays.
enum class TruncationMode {
  keep_start,  ///< The first tokens.
  keep_end,    ///< The last tokens.
};

/// Options of `DataCollatorForPreference`.
struct DataCollatorForPreferenceOptions {
  int64_t pad_token_id = 0;                                     ///< What ids are padded with.
  std::optional<int64_t> max_length = {};                       ///< Longer sequences are cut.
  TruncationMode truncation_mode = TruncationMode::keep_start;  ///< Where they are cut.
  std::optional<int64_t> pad_to_multiple_of = {};               ///< Rounds the padded length up.
};

/// The collators of trl's `DPOTrainer` and `RewardTrainer`. Rows with `prompt_ids`, `chosen_ids`
/// and `rejected_ids` (DPO) make input_ids, attention_mask and completion_mask, all chosen
/// sequences first. Rows without a prompt (reward models) make no completion_mask. The columns
/// `ref_chosen_logps`, `ref_rejected_logps` and `margin` are kept.
class DataCollatorForPreference {
 public:
  /// A collator with these options, which are checked with the first batch.
  explicit DataCollatorForPreference(DataCollatorForPreferenceOptions options)
      : options_(options) {}
  /// The batch of these rows.
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorForPreferenceOptions options_;
};

/// Options of `DataCollatorForUnpairedPreference`.
struct DataCollatorForUnpairedPreferenceOptions {
  int64_t pad_token_id = 0;                        ///< What ids are padded with.
  std::optional<int64_t> max_length = {};          ///< Longer sequences are cut.
  std::optional<int64_t> pad_to_multiple_of = {};  ///< Rounds the padded length up.
};

/// The collator of trl's `KTOTrainer`, for rows of prompt_ids, completion_ids, label and, optional,
/// KL_completion_ids.
class DataCollatorForUnpairedPreference {
 public:
  /// A collator with these options, which are checked with the first batch.
  explicit DataCollatorForUnpairedPreference(DataCollatorForUnpairedPreferenceOptions options)
      : options_(options) {}
  /// The batch of these rows.
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorForUnpairedPreferenceOptions options_;
};

/// Options of `RemoveColumnsCollator`.
struct RemoveColumnsOptions {
  DataCollator collator = {};             ///< Collates the remaining columns.
  std::vector<std::string> columns = {};  ///< The columns that stay.
  std::string model_name = {};            ///< For the message, logged once; empty logs none.
  std::string description = {};           ///< "training", "evaluation" and so on.
};

/// Removes the columns that the model does not take, then calls another collator.
class RemoveColumnsCollator {
 public:
  /// A collator with these options, which are checked with the first batch.
  explicit RemoveColumnsCollator(RemoveColumnsOptions options);
  /// The batch of these rows.
  Batch operator()(std::vector<Example> rows) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace gradus
