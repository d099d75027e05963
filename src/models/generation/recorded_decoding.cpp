#include "models/generation/recorded_decoding.h"

#include <gradus/core/log.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "models/generation/recorded_sampling.h"

namespace gradus {

using torch::Tensor;

RecordedDecoding::RecordedDecoding(Decoder& decoder,
                                   std::shared_ptr<const kernels::Recorder> recorder,
                                   int64_t max_length)
    : decoder_(decoder), recorder_(std::move(recorder)), max_length_(max_length) {
  stream_ = recorder_->own_stream(decoder.prompt().device());
}

// What the decoder has after the prompt.
void RecordedDecoding::begin(int64_t rows) {
  has_begun_ = true;
  length_ = decoder_.cache_.length();
  const auto options = decoder_.prompt_.options();
  place_ = at::full({1}, length_, options);
  if (decoder_.model_.is_encoder_decoder()) {
    mask_ = decoder_.decoder_mask_.defined() ? decoder_.decoder_mask_
                                             : at::ones({rows, length_}, options);
  } else {
    mask_ = decoder_.attention_mask_;
    positions_ = decoder_.positions_.narrow(1, length_ - 1, 1) + 1;
  }
  arrange(Tensor());
}

// New memory, for other rows (`kept` of those there are) or for more tokens.
void RecordedDecoding::arrange(const Tensor& kept) {
  work_.reset();
  is_warm_ = false;
  logits_ = Tensor();
  room_ = room_for_tokens(length_, max_length_);
  if (kept.defined()) {
    mask_ = mask_.index_select(0, kept);
    if (positions_.defined()) positions_ = positions_.index_select(0, kept);
  }
  place_ = place_.clone();
  const auto rows = mask_.size(0), known = std::min(mask_.size(1), room_);
  auto mask = at::zeros({rows, room_}, mask_.options());
  mask.narrow(1, 0, known).copy_(mask_.narrow(1, 0, known));
  mask_ = mask;
  own_ = at::arange(rows, place_.options());
  origins_ = own_.clone();
  tokens_ = at::zeros({rows, 1}, place_.options());
  decoder_.cache_ = decoder_.cache_.fixed(room_, place_, kept);
}

// The first step of a shape runs plainly, the second is recorded.
const Tensor& RecordedDecoding::next_logits(const Tensor& tokens) {
  if (!has_begun_) begin(tokens.size(0));
  if (length_ >= room_) arrange(Tensor());
  tokens_.copy_(tokens);
  ++length_;
  if (!work_ && is_warm_ && !cannot_be_recorded_) {
    try {
      work_ = recorder_->record([this] { run(); });
    } catch (const std::exception& error) {
      const std::string why = error.what();
      cannot_be_recorded_ = true;
      log_warning_once("Generation is not recorded: " + why.substr(0, why.find('\n')));
    }
  }
  if (work_)
    work_->replay();
  else
    run();
  is_warm_ = true;
  origins_.copy_(own_);
  return logits_;
}

void RecordedDecoding::select_rows(const Tensor& rows) {
  if (!has_begun_) begin(rows.size(0));
  origins_.copy_(rows);
}

void RecordedDecoding::keep_rows(const Tensor& rows) {
  if (!has_begun_) begin(decoder_.prompt_.size(0));
  arrange(rows);
}

// The work of a step. All tensors keep their memory.
void RecordedDecoding::run() {
  auto& cache = decoder_.cache_;
  cache.select_rows(origins_);
  mask_.index_fill_(1, place_, 1);
  Batch inputs;
  if (decoder_.model_.is_encoder_decoder())
    inputs = {{"decoder_input_ids", tokens_},
              {"decoder_attention_mask", mask_},
              {"encoder_hidden_states", decoder_.encoder_states_},
              {"attention_mask", decoder_.attention_mask_}};
  else
    inputs = {{"input_ids", tokens_}, {"attention_mask", mask_}, {"position_ids", positions_}};
  const auto logits = decoder_.model_.decode(inputs, cache).to(torch::kFloat);
  if (!logits_.defined()) logits_ = at::empty_like(logits);
  logits_.copy_(logits);
  place_.add_(1);
  if (positions_.defined()) positions_.add_(1);
}

}  // namespace gradus
