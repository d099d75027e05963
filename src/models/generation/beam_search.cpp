#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "models/generation/decoding_loop.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr double kVeryLow = -1.0e9;

Tensor gather_beams(const Tensor& tensor, Tensor beams) {
  while (beams.dim() < tensor.dim()) beams = beams.unsqueeze(-1);
  return tensor.take_along_dim(beams, 1);
}

/// (prompts, beams, …) -> (prompts · beams, …)
Tensor flattened(const Tensor& tensor) { return tensor.flatten(0, 1); }

/// Sequences in the making, or complete ones: tokens, scores and from which row each token came.
struct Beams {
  Tensor sequences;  ///< (prompts, beams, max_length)
  Tensor scores;     ///< (prompts, beams)
  Tensor origins;  ///< (prompts, beams, new tokens): row of the step before; -1 where no token was
                   ///< written

  Beams select(const Tensor& beams) const {
    return {gather_beams(sequences, beams), gather_beams(scores, beams),
            gather_beams(origins, beams)};
  }
};

class BeamSearch {
 public:
  BeamSearch(Decoder& decoder, const DecodingPlan& plan)
      : decoder_(decoder), plan_(plan), beams_(*plan.options.num_beams) {
    const auto& prompt = decoder.prompt();
    prompts_ = prompt.size(0) / beams_;
    prompt_length_ = length_ = prompt.size(1);
    const auto device = prompt.device();
    const auto ends =
        plan.options.eos_token_id ? plan.options.eos_token_id->ids() : std::vector<int64_t>{};
    candidates_ = std::max<int64_t>(2, 1 + static_cast<int64_t>(ends.size())) * beams_;
    // A pad token of 0 counts as none here, as in transformers.
    const auto fill = ends.empty()                      ? -1
                      : plan.pad_token.value_or(0) != 0 ? *plan.pad_token
                                                        : ends[0];
    const auto ids = torch::TensorOptions().dtype(torch::kLong).device(device);
    running_.sequences = at::full({prompts_, beams_, plan.max_length}, fill, ids);
    running_.sequences.narrow(2, 0, length_).copy_(prompt.view({prompts_, beams_, length_}));
    running_.scores = at::zeros({prompts_, beams_}, ids.dtype(torch::kFloat));
    running_.scores.narrow(1, 1, beams_ - 1)
        .fill_(kVeryLow);  // at first all beams of a prompt are the same
    running_.origins = at::full({prompts_, beams_, plan.max_length - length_}, -1, ids);
    done_ = {running_.sequences.clone(),
             at::full({prompts_, beams_}, kVeryLow, ids.dtype(torch::kFloat)),
             running_.origins.clone()};
    finished_ = at::zeros({prompts_, beams_}, ids.dtype(torch::kBool));
    improvable_ = at::full({prompts_, 1}, true, ids.dtype(torch::kBool));
    top_ = at::arange(candidates_, ids) < beams_;
  }

  Tensor run() {
    auto rows = decoder_.prompt();
    while (true) {
      const auto logits = decoder_.next_logits(rows);
      const auto candidates = continuations(plan_.process(rows, logits.log_softmax(-1)));
      const auto hits =
          plan_.stop.finished(flattened(candidates.sequences.narrow(2, 0, length_ + 1)))
              .view({prompts_, candidates_});
      keep_running(candidates, hits);
      collect_finished(candidates, hits);
      decoder_.select_rows(running_.origins.select(2, length_ - prompt_length_).reshape({-1}));
      ++length_;
      check_improvable();
      if (!goes_on(hits)) break;
      rows = flattened(running_.sequences.narrow(2, 0, length_));
    }
    return best();
  }

 private:
  bool stops_early() const {
    return plan_.options.early_stopping->kind() == EarlyStopping::Kind::yes;
  }

  /// The best (or drawn) extensions of all beams of each prompt, more than beams so that enough are
  /// left when some end.
  Beams continuations(Tensor log_probs) const {
    const auto vocabulary = log_probs.size(-1);
    log_probs = (log_probs.view({prompts_, beams_, vocabulary}) + running_.scores.unsqueeze(2))
                    .reshape({prompts_, -1});
    Tensor scores, places;
    if (*plan_.options.do_sample) {
      places = log_probs.softmax(-1).multinomial(candidates_);
      scores = log_probs.gather(1, places);
    } else {
      std::tie(scores, places) = log_probs.topk(candidates_);
    }
    const auto beams = places.div(vocabulary, "floor");
    Beams result{gather_beams(running_.sequences, beams), scores,
                 gather_beams(running_.origins, beams)};
    result.sequences.select(2, length_).copy_(places.remainder(vocabulary));
    const auto offsets = at::arange(prompts_, places.options()).unsqueeze(1) * beams_;
    result.origins.select(2, length_ - prompt_length_).copy_(beams + offsets);
    return result;
  }

  void keep_running(const Beams& candidates, const Tensor& hits) {
    auto open = candidates;
    open.scores = candidates.scores + hits.to(torch::kFloat) * kVeryLow;
    running_ = open.select(std::get<1>(open.scores.topk(beams_)));
  }

  /// Only the best `beams_` candidates may become final; the others are there to go on with.
  void collect_finished(const Beams& candidates, const Tensor& hits) {
    const auto ended = hits.logical_and(top_.unsqueeze(0));
    const auto generated = static_cast<double>(length_ + 1 - prompt_length_);
    auto scores = candidates.scores / std::pow(generated, *plan_.options.length_penalty);
    if (stops_early()) scores += finished_.all(1, /*keepdim=*/true).to(torch::kFloat) * kVeryLow;
    scores += improvable_.logical_not().to(torch::kFloat) * kVeryLow;
    scores += ended.logical_not() * kVeryLow;
    const Beams merged{at::cat({done_.sequences, candidates.sequences}, 1),
                       at::cat({done_.scores, scores}, 1),
                       at::cat({done_.origins, candidates.origins}, 1)};
    const auto best = std::get<1>(merged.scores.topk(beams_));
    finished_ = gather_beams(at::cat({finished_, ended}, 1), best);
    done_ = merged.select(best);
  }

  /// Whether a running beam could still beat a finished one.
  void check_improvable() {
    const auto penalty = *plan_.options.length_penalty;
    const bool to_the_end =
        plan_.options.early_stopping->kind() == EarlyStopping::Kind::never && penalty > 0.0;
    const auto length =
        static_cast<double>((to_the_end ? plan_.max_length : length_) - prompt_length_);
    const auto possible = running_.scores.narrow(1, 0, 1) / std::pow(length, penalty);
    const auto worst =
        at::where(finished_, std::get<0>(done_.scores.min(1, /*keepdim=*/true)), kVeryLow);
    improvable_ = improvable_.logical_and((possible > worst).any(-1, /*keepdim=*/true));
  }

  bool goes_on(const Tensor& hits) const {
    if (!improvable_.any().item<bool>()) return false;
    if (stops_early() && finished_.all().item<bool>()) return false;
    return !hits.all().item<bool>();
  }

  Tensor best() const {
    const auto returned = *plan_.options.num_return_sequences;
    const auto written =
        flattened(done_.origins.narrow(1, 0, returned)).ne(-1).sum(1).max().item<int64_t>();
    return flattened(done_.sequences.narrow(1, 0, returned))
        .narrow(1, 0, prompt_length_ + written)
        .contiguous();
  }

  Decoder& decoder_;
  const DecodingPlan& plan_;
  int64_t beams_, prompts_ = 0, candidates_ = 0, prompt_length_ = 0, length_ = 0;
  Beams running_, done_;
  Tensor finished_;    ///< (prompts, beams): whether that entry of done_ is a complete sequence
  Tensor improvable_;  ///< (prompts, 1)
  Tensor top_;         ///< (candidates): the first `beams_`
};

}  // namespace

Tensor beam_search(Decoder& decoder, const DecodingPlan& plan) {
  return BeamSearch(decoder, plan).run();
}

}  // namespace gradus
