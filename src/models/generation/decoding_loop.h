#pragma once

#include <gradus/models/pretrained_model.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "models/generation/logits_processors.h"

namespace gradus {

class RecordedDecoding;

/// The model's side of a decoding loop: rows of tokens in, scores of the next token out.
///
/// Holds cache, attention mask and encoder output, one row per sequence that is being written.
class Decoder {
 public:
  /// `inputs` as given to generate(); each row is repeated `copies` times.
  Decoder(PreTrainedModel& model, const Batch& inputs, const GenerationOptions& options,
          int64_t copies);
  ~Decoder();

  /// From now on steps of one token are recorded, where model and device can; rows get at most
  /// `max_length` tokens. Before the first call of `next_logits`.
  void record_steps(int64_t max_length);

  /// What decoding starts from (rows, tokens): the prompt, or the start token of an encoder-decoder
  /// model.
  const torch::Tensor& prompt() const { return prompt_; }
  /// What was given to generate() (prompts, tokens): the encoder's input where there is an encoder.
  const torch::Tensor& given_ids() const { return given_ids_; }
  /// The highest position in the prompt; -1 for encoder-decoder models, which have none here.
  int64_t last_position() const;
  /// Logits (rows, vocabulary) in float32 behind the last of `ids`; all tokens before must have
  /// been given in earlier calls.
  torch::Tensor next_logits(const torch::Tensor& ids);
  /// Continues with these rows (beam search); they stay with their prompts.
  void select_rows(const torch::Tensor& rows);
  /// The same, but only with these prompts: `rows` are theirs.
  void keep_rows(const torch::Tensor& rows, const torch::Tensor& prompts);
  /// Continues with `rows` of `count` rows, whatever becomes of the other copies of their prompts.
  void keep_rows_alone(const torch::Tensor& rows, int64_t count);
  /// Whether steps of one token can be the same work every time: see `KeyValueCache::fixed`.
  bool is_recordable() const {
    return use_cache_ && !types_.defined() && model_.decodes_in_place();
  }
  /// Whether the model reads what was given with an encoder.
  bool has_encoder() const { return encoder_states_.defined(); }

 private:
  friend class RecordedRows;      // goes on with what it holds
  friend class RecordedDecoding;  // makes its steps
  void prepare_prompt(const Batch& inputs, const GenerationOptions& options);
  void prepare_start(const Batch& inputs, const GenerationOptions& options);
  void prepare_positions(const Batch& inputs);

  PreTrainedModel& model_;
  bool use_cache_;
  torch::Tensor prompt_, given_ids_;
  torch::Tensor attention_mask_;  ///< over the prompt (or the encoder's tokens); grows with the
                                  ///< text of decoder-only models
  torch::Tensor positions_;  ///< decoder-only: of all tokens so far; a new one follows the last
  torch::Tensor types_;  ///< decoder-only, when token_type_ids are given; a new token has the type
                         ///< of the last
  torch::Tensor encoder_states_;
  torch::Tensor decoder_mask_;  ///< encoder-decoder, when given; grows with the text
  layers::KeyValueCache cache_;
  std::unique_ptr<RecordedDecoding> recorded_;  ///< Null where steps are not recorded.
};

/// Says which rows are finished after a token.
class StopRules {
 public:
  StopRules(const GenerationOptions& options, int64_t max_length);
  /// (rows) bool, on the device of `ids`.
  torch::Tensor finished(const torch::Tensor& ids) const;
  /// Whether rows of `tokens` tokens are finished whatever they hold: by their length or the time.
  bool is_over(int64_t tokens) const {
    return tokens >= max_length_ || std::chrono::steady_clock::now() > deadline_;
  }
  /// Whether `row` is finished with `token` behind it, by what it holds.
  bool ends_with(const std::vector<int64_t>& row, int64_t token) const;
  bool has_end_tokens() const { return !ends_.empty(); }
  const std::vector<int64_t>& ends() const { return ends_; }

 private:
  /// Whether there are rules that read more than the last token.
  bool reads_rows() const;
  bool ends_by_row(const std::vector<int64_t>& row) const;
  bool ends_in_text(const std::vector<int64_t>& row) const;

  const GenerationOptions& options_;
  int64_t max_length_;
  std::vector<int64_t> ends_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
};

struct DecodingPlan {
  const GenerationOptions& options;
  int64_t max_length;
  std::optional<int64_t> pad_token;
  std::vector<LogitsProcessor> processors;
  StopRules stop;

  torch::Tensor process(const torch::Tensor& ids, torch::Tensor scores) const;
  /// Whether the model need not go on with rows that are finished: nothing else looks at them.
  /// Random numbers are drawn for all rows nevertheless, so that the text stays the same.
  bool may_leave_out_rows() const;
};

/// Greedy search and sampling.
torch::Tensor sample(Decoder& decoder, const DecodingPlan& plan);

/// Beam search and beam sampling; `decoder` has num_beams rows per prompt.
torch::Tensor beam_search(Decoder& decoder, const DecodingPlan& plan);

}  // namespace gradus
