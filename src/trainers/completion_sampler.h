#pragma once

#include <gradus/models/pretrained_model.h>
#include <gradus/text/tokenizer.h>
#include <gradus/trainers/rollout_trainer.h>

namespace gradus {

/// Turns prompts into tokens, lets the model complete them, and pads both for the loss.
///
/// The model samples in place, all completions in one batch, with its key-value cache.
/// Thread-safety: none.
class CompletionSampler {
 public:
  /// Takes the end tokens of tokenizer and model. The tokenizer has a padding token.
  CompletionSampler(std::shared_ptr<Tokenizer> tokenizer, const PreTrainedModel& model,
                    RolloutSettings settings);

  /// One completion for each row. `numbers` name the rows in messages. Throws `Error` G-TRL-2 for
  /// rows without a prompt, and for a prompt that leaves no room for a token.
  Rollouts sample(const std::vector<Example>& rows, const std::vector<int64_t>& numbers,
                  PreTrainedModel& model) const;
  /// Checks what a rollout function has made for `rows` rows. Throws `Error` G-TRL-2.
  void check(const Rollouts& rollouts, size_t rows) const;
  /// prompt_ids, prompt_mask, completion_ids and completion_mask of a batch. With
  /// `mask_truncated_completions` the masks of completions without end are 0.
  Batch padded(const Rollouts& rollouts, torch::Device device) const;
  /// Whether a completion was cut off at its greatest length.
  bool is_truncated(const std::vector<int64_t>& completion) const;
  /// The texts of completions, without special tokens.
  std::vector<std::string> texts(const Rollouts& rollouts) const;
  /// The tokenizer.
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  std::vector<int64_t> prompt_tokens(const Example& row, int64_t number) const;
  torch::Tensor padded_rows(const std::vector<std::vector<int64_t>>& rows, int64_t filler,
                            bool left) const;

  std::shared_ptr<Tokenizer> tokenizer_;
  RolloutSettings settings_;
  std::vector<int64_t> ends_;  ///< Tokens that end a completion.
  int64_t pad_ = 0;
};

}  // namespace gradus
