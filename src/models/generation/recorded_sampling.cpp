#include "models/generation/recorded_sampling.h"

#include <gradus/core/log.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace gradus {

using torch::Tensor;

namespace {

constexpr int64_t kRoomStep = 64;   // rooms are multiples of it
constexpr int64_t kMostRoom = 512;  // longer rows get room step by step, so that few keys are read
constexpr int64_t kGrowth = 256;
constexpr int64_t kLookEvery = 16;     // tokens between two looks at the device
constexpr int64_t kFewestTokens = 24;  // new tokens that are worth a recording
constexpr int64_t kRowStep = 8;

int64_t rounded_up_to(int64_t count, int64_t step) { return (count + step - 1) / step * step; }

/// Whether nothing but the scores decides on the next token, in the same way in every step.
bool is_same_in_all_steps(const GenerationOptions& options) {
  const bool has_lists = options.sequence_bias || options.bad_words_ids ||
                         options.begin_suppress_tokens || options.exponential_decay_length_penalty;
  const bool reads_text = options.encoder_repetition_penalty.value_or(1.0) != 1.0 ||
                          options.repetition_penalty.value_or(1.0) != 1.0 ||
                          options.no_repeat_ngram_size.value_or(0) > 0 ||
                          options.encoder_no_repeat_ngram_size.value_or(0) > 0;
  const bool reads_length = options.min_new_tokens.value_or(0) > 0 ||
                            options.min_length.value_or(0) > 0 || options.forced_bos_token_id ||
                            options.forced_eos_token_id || options.max_time;
  const bool is_rare = options.top_h || options.typical_p.value_or(1.0) < 1.0 ||
                       options.epsilon_cutoff.value_or(0.0) > 0.0 ||
                       options.eta_cutoff.value_or(0.0) > 0.0;
  const bool calls_back = !options.logits_processors.empty() ||
                          !options.stopping_criteria.empty() || options.streamer ||
                          (options.stop_strings && !options.stop_strings->empty());
  return !has_lists && !reads_text && !reads_length && !is_rare && !calls_back;
}

}  // namespace

int64_t room_for_tokens(int64_t length, int64_t limit) {
  const auto all = rounded_up_to(limit, kRoomStep);
  return all <= kMostRoom ? all : std::min(all, rounded_up_to(length + 1, kGrowth));
}

std::shared_ptr<const kernels::Recorder> generation_recorder(torch::Device device,
                                                             int64_t new_tokens) {
  auto recorder = kernels::recorder();
  return recorder && recorder->takes(device) && new_tokens >= kFewestTokens ? recorder : nullptr;
}

/// The rows of one recording. All tensors keep their memory; a step reads and writes them.
class RecordedRows {
 public:
  RecordedRows(Decoder& decoder, const DecodingPlan& plan, int64_t all)
      : decoder_(decoder), plan_(plan), all_(all), pad_(plan.pad_token.value_or(0)) {}

  /// Starts with what the decoder has after the first new tokens `next`.
  void begin(const Tensor& next, const Tensor& open) {
    const auto prompt = decoder_.prompt_.size(1);
    const auto options = next.options();
    length_ = prompt + 1;
    ids_ = at::full({all_, plan_.max_length}, pad_, options);
    ids_.narrow(1, 0, prompt).copy_(decoder_.prompt_);
    ids_.select(1, prompt).copy_(next);
    rows_ = at::arange(all_, options);
    open_ = open.clone();
    place_ = at::full({1}, prompt, options);
    positions_ = decoder_.positions_.narrow(1, prompt - 1, 1) + 1;
    mask_ = decoder_.attention_mask_;
    cache_ = std::move(decoder_.cache_);
    arrange(Tensor());
  }

  bool is_at_end() const { return length_ >= plan_.max_length; }
  int64_t length() const { return length_; }
  /// All rows, with the tokens so far.
  const Tensor& ids() const { return ids_; }

  /// One more token. The first step of a shape runs plainly, the second is recorded.
  void step(const kernels::Recorder& recorder) {
    if (length_ > room_) arrange(Tensor());
    ++length_;
    if (work_) return work_->replay();
    if (!is_warm_ || cannot_be_recorded_) {
      is_warm_ = true;
      return run();
    }
    try {
      work_ = recorder.record([this] { run(); });
    } catch (const std::exception& error) {
      const std::string why = error.what();
      cannot_be_recorded_ = true;
      log_warning_once("Generation is not recorded: " + why.substr(0, why.find('\n')));
      return run();
    }
    work_->replay();
  }

  /// Looks at the device: whether all rows are finished. Lets the batch go on without finished rows
  /// where that makes it much smaller.
  bool all_are_finished() {
    const auto is_open = open_.to(torch::kCPU);
    const auto left = is_open.sum().item<int64_t>(), now = is_open.size(0);
    if (left == 0) return true;
    const auto kept = std::min(rounded_up_to(left, kRowStep), now);
    if (kept * 2 > now) return false;
    // Open rows first, then as many of the others as fill up the step.
    const auto order = is_open.to(torch::kLong).neg().argsort(/*stable=*/true, 0);
    arrange(std::get<0>(order.narrow(0, 0, kept).sort()).to(open_.device()));
    return false;
  }

 private:
  /// New memory, for other rows (`kept` of those there are) or for more tokens.
  void arrange(const Tensor& kept) {
    work_.reset();
    is_warm_ = false;
    room_ = room_for_tokens(length_, plan_.max_length);
    if (kept.defined()) {
      rows_ = rows_.index_select(0, kept);
      open_ = open_.index_select(0, kept);
      positions_ = positions_.index_select(0, kept);
      mask_ = mask_.index_select(0, kept);
    }
    place_ = place_.clone();
    const auto known = std::min(mask_.size(1), room_);
    auto mask = at::zeros({mask_.size(0), room_}, mask_.options());
    mask.narrow(1, 0, known).copy_(mask_.narrow(1, 0, known));
    mask_ = mask;
    cache_ = cache_.fixed(room_, place_, kept);
  }

  /// The work of a step: reads the last token and writes the next one.
  void run() {
    const auto last = ids_.index_select(1, place_).index_select(0, rows_);
    mask_.index_fill_(1, place_, 1);
    const Batch inputs{
        {"input_ids", last}, {"attention_mask", mask_}, {"position_ids", positions_}};
    const auto logits = decoder_.model_.decode(inputs, cache_).to(torch::kFloat);
    auto next = chosen(plan_.process(last, logits));
    if (plan_.stop.has_end_tokens()) next = next.masked_fill(open_.logical_not(), pad_);
    place_.add_(1);
    positions_.add_(1);
    ids_.index_put_({rows_, place_.expand({rows_.size(0)})}, next);
    for (const auto end : plan_.stop.ends()) open_.logical_and_(next.ne(end));
  }

  /// As `multinomial` draws one token, without a look at the scores. Random numbers are drawn for
  /// all rows.
  Tensor chosen(const Tensor& scores) const {
    if (!*plan_.options.do_sample) return scores.argmax(-1);
    const auto shares = scores.softmax(-1);
    auto chance = at::empty({all_, shares.size(1)}, shares.options()).exponential_(1);
    if (rows_.size(0) != all_) chance = chance.index_select(0, rows_);
    return shares.div(chance).argmax(-1);
  }

  Decoder& decoder_;
  const DecodingPlan& plan_;
  int64_t all_, pad_;
  int64_t length_ = 0, room_ = 0;
  Tensor ids_;    ///< (all rows, most tokens)
  Tensor rows_;   ///< Those of them that are still here.
  Tensor open_;   ///< Which of these are not finished.
  Tensor place_;  ///< Of the last token.
  Tensor positions_, mask_;
  layers::KeyValueCache cache_;
  std::unique_ptr<kernels::RecordedWork> work_;
  bool is_warm_ = false, cannot_be_recorded_ = false;
};

namespace {

/// Rows end where the last one of them is finished.
Tensor cut_where_all_are_finished(const Tensor& ids, int64_t prompt, int64_t length,
                                  const std::vector<int64_t>& ends) {
  const auto here = ids.narrow(1, 0, length).to(torch::kCPU).contiguous();
  int64_t last = prompt + 1;
  for (int64_t i = 0; i < here.size(0); ++i) {
    const auto* row = here.const_data_ptr<int64_t>() + i * length;
    const auto* end = std::find_if(row + prompt, row + length, [&](int64_t id) {
      return std::ranges::find(ends, id) != ends.end();
    });
    last = std::max(last, std::min(int64_t(end - row) + 1, length));
  }
  return ids.narrow(1, 0, last).clone();
}

}  // namespace

std::optional<Tensor> sample_recorded(Decoder& decoder, const DecodingPlan& plan) {
  const auto prompt = decoder.prompt().size(1), all = decoder.prompt().size(0);
  const auto recorder = generation_recorder(decoder.prompt().device(), plan.max_length - prompt);
  if (!recorder || !decoder.is_recordable() || decoder.has_encoder() ||
      !is_same_in_all_steps(plan.options))
    return std::nullopt;
  const auto stream = recorder->own_stream(decoder.prompt().device());
  const auto scores = plan.process(decoder.prompt(), decoder.next_logits(decoder.prompt()));
  const auto next =
      *plan.options.do_sample ? scores.softmax(-1).multinomial(1).squeeze(1) : scores.argmax(-1);
  auto open = torch::ones({all}, next.options().dtype(torch::kBool));
  for (const auto end : plan.stop.ends()) open.logical_and_(next.ne(end));
  RecordedRows rows(decoder, plan, all);
  rows.begin(next, open);
  int64_t made = 0;
  bool finished = false;
  while (!rows.is_at_end() && !finished) {
    const bool looks = plan.stop.has_end_tokens() && made++ % kLookEvery == 0;
    finished = looks && rows.all_are_finished();
    if (!finished) rows.step(*recorder);
  }
  return plan.stop.has_end_tokens()
             ? cut_where_all_are_finished(rows.ids(), prompt, rows.length(), plan.stop.ends())
             : rows.ids();
}

}  // namespace gradus
