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

// Each collator makes the tensors of the peer's class of the same name for the same rows. They are
// plain values that can be called, so each is a `DataCollator`. Thread-safety: all may be called by
// several threads at once.
//
// Those that draw random numbers seed a generator from their seed (default: the loader's), the
// epoch and the number of the batch, so that a batch is the same for any number of workers and
// after a resume. In the first batch of the first epoch the generator is
// `torch.Generator().manual_seed(seed)`.

/// Stacks the rows column by column, as `transformers.default_data_collator` does.
///
/// The first row says which columns there are. `label` and `label_ids` become `labels` (int64 for
/// integers, float32 for floats); text and null columns are left out; numbers and lists become
/// tensors, tensors are stacked. Throws G-DATA-1 when a later row lacks a column, G-DATA-6 when a
/// value cannot be a tensor, G-DATA-7 when lengths differ.
Batch default_data_collator(std::vector<Example> rows);

struct DataCollatorWithPaddingOptions {
  std::shared_ptr<const TokenizerLike> tokenizer = {};
  PaddingStrategy padding = PaddingStrategy::longest;
  std::optional<int64_t> max_length = {};
  std::optional<int64_t> pad_to_multiple_of = {};
};

/// `pad_rows`, with `label` and `label_ids` renamed to `labels`.
class DataCollatorWithPadding {
 public:
  explicit DataCollatorWithPadding(DataCollatorWithPaddingOptions options);
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorWithPaddingOptions options_;
};

struct DataCollatorForTokenClassificationOptions {
  std::shared_ptr<const TokenizerLike> tokenizer = {};
  PaddingStrategy padding = PaddingStrategy::longest;
  std::optional<int64_t> max_length = {};
  std::optional<int64_t> pad_to_multiple_of = {};
  int64_t label_pad_token_id = -100;
};

/// As above, and the labels (one per token, in `label` or `labels`) filled up beside the ids.
class DataCollatorForTokenClassification {
 public:
  explicit DataCollatorForTokenClassification(DataCollatorForTokenClassificationOptions options);
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorForTokenClassificationOptions options_;
};

/// Rows whose columns hold one list per choice: tensors `[rows, choices, length]`; `labels` is the
/// right choice.
class DataCollatorForMultipleChoice {
 public:
  explicit DataCollatorForMultipleChoice(DataCollatorWithPaddingOptions options);
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorWithPaddingOptions options_;
};

struct DataCollatorForSeq2SeqOptions {
  std::shared_ptr<const TokenizerLike> tokenizer = {};
  /// The model's `prepare_decoder_input_ids_from_labels`, when it has one: fills
  /// `decoder_input_ids`.
  std::function<torch::Tensor(const torch::Tensor& labels)> prepare_decoder_input_ids = {};
  PaddingStrategy padding = PaddingStrategy::longest;
  std::optional<int64_t> max_length = {};
  std::optional<int64_t> pad_to_multiple_of = {};
  int64_t label_pad_token_id = -100;
};

/// Inputs and labels filled up, each to its own longest row. Rows without labels (or with null)
/// give a batch without.
class DataCollatorForSeq2Seq {
 public:
  explicit DataCollatorForSeq2Seq(DataCollatorForSeq2SeqOptions options);
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorForSeq2SeqOptions options_;
};

struct DataCollatorForLanguageModelingOptions {
  std::shared_ptr<const TokenizerLike> tokenizer = {};
  bool mlm = true;
  /// Masks all tokens of a word; rows need `offset_mapping`. Every masked token is then replaced by
  /// the mask token.
  bool whole_word_mask = false;
  double mlm_probability = 0.15;
  double mask_replace_prob = 0.8;    ///< of the masked tokens: how many become the mask token
  double random_replace_prob = 0.1;  ///< … how many become a random one; the others stay
  std::optional<int64_t> pad_to_multiple_of = {};
  std::optional<int64_t> seed = {};  ///< default: the loader's
};

/// Causal (`mlm = false`: labels are the ids, -100 at padding tokens) or masked language modelling.
/// The constructor throws G-DATA-14 for probabilities that make no sense and for a tokenizer
/// without mask token.
class DataCollatorForLanguageModeling {
 public:
  explicit DataCollatorForLanguageModeling(DataCollatorForLanguageModelingOptions options);
  Batch operator()(std::vector<Example> rows) const;

  struct Words {
    torch::Tensor word_ids;   ///< int64; -1 at special tokens
    torch::Tensor prob_mask;  ///< bool; true where no mask may begin
  };
  /// Which word each token belongs to, from character offsets `[rows, length, 2]`.
  static Words word_ids(const torch::Tensor& offsets, const torch::Tensor& special_tokens_mask);
  /// `mask` spread over whole words.
  static torch::Tensor whole_words(const torch::Tensor& word_ids, const torch::Tensor& mask);

 private:
  void mask_tokens(Batch& batch, const torch::Tensor& special_tokens_mask,
                   const torch::Tensor& offsets) const;

  DataCollatorForLanguageModelingOptions options_;
};

struct DataCollatorForPermutationLanguageModelingOptions {
  std::shared_ptr<const TokenizerLike> tokenizer = {};
  double plm_probability = 1.0 / 6;
  int64_t max_span_length = 5;
  std::optional<int64_t> seed = {};
};

/// XLNet's permutation language modelling. Throws G-DATA-14 without mask token and for an odd
/// length.
class DataCollatorForPermutationLanguageModeling {
 public:
  explicit DataCollatorForPermutationLanguageModeling(
      DataCollatorForPermutationLanguageModelingOptions options);
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorForPermutationLanguageModelingOptions options_;
};

struct DataCollatorWithFlatteningOptions {
  bool return_position_ids = true;
  int64_t separator_id = -100;
  bool return_flash_attn_kwargs = false;
  bool return_seq_idx = false;
  int64_t position_ids_start = 0;
};

/// All rows behind each other as one row `[1, tokens]`, without padding. `max_length_q` and
/// `max_length_k` are tensors without dimensions.
class DataCollatorWithFlattening {
 public:
  explicit DataCollatorWithFlattening(DataCollatorWithFlatteningOptions options = {})
      : options_(options) {}
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorWithFlatteningOptions options_;
};

struct DataCollatorForSftOptions {
  int64_t pad_token_id = 0;
  bool padding_free = false;
  bool return_position_ids = false;
  std::optional<int64_t> pad_to_multiple_of = {};
};

/// TRL's `DataCollatorForLanguageModeling` of supervised fine-tuning: labels are used as they are
/// (default: the ids). With `padding_free` one row of all, with position ids that restart at each
/// sequence (and at each `seq_lengths` of a packed row), cu_seq_lens (int32) and seq_idx.
class DataCollatorForSft {
 public:
  explicit DataCollatorForSft(DataCollatorForSftOptions options) : options_(options) {}
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorForSftOptions options_;
};

enum class TruncationMode { keep_start, keep_end };

struct DataCollatorForPreferenceOptions {
  int64_t pad_token_id = 0;
  std::optional<int64_t> max_length = {};
  TruncationMode truncation_mode = TruncationMode::keep_start;
  std::optional<int64_t> pad_to_multiple_of = {};
};

/// TRL's preference collators. Rows with `prompt_ids`, `chosen_ids` and `rejected_ids` (DPO) give
/// input_ids, attention_mask and completion_mask, the chosen ones first; rows without a prompt
/// (reward models) no completion_mask. `ref_chosen_logps`, `ref_rejected_logps` and `margin` go
/// along.
class DataCollatorForPreference {
 public:
  explicit DataCollatorForPreference(DataCollatorForPreferenceOptions options)
      : options_(options) {}
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorForPreferenceOptions options_;
};

struct DataCollatorForUnpairedPreferenceOptions {
  int64_t pad_token_id = 0;
  std::optional<int64_t> max_length = {};
  std::optional<int64_t> pad_to_multiple_of = {};
};

/// TRL's collator of KTO: prompt_ids, completion_ids, label and, where they are there,
/// KL_completion_ids.
class DataCollatorForUnpairedPreference {
 public:
  explicit DataCollatorForUnpairedPreference(DataCollatorForUnpairedPreferenceOptions options)
      : options_(options) {}
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorForUnpairedPreferenceOptions options_;
};

struct RemoveColumnsOptions {
  DataCollator collator = {};             ///< what is called with the columns that stay
  std::vector<std::string> columns = {};  ///< those that stay
  std::string model_name = {};            ///< for the message, said once; none when empty
  std::string description = {};           ///< "training", "evaluation" …
};

/// Leaves out the columns the model does not take.
class RemoveColumnsCollator {
 public:
  explicit RemoveColumnsCollator(RemoveColumnsOptions options);
  Batch operator()(std::vector<Example> rows) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace gradus
