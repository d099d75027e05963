#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/generation/decoding_loop.h"
#include "models/generation/top_continuations.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr float kVeryLow = -1.0e9F;

/// A complete sequence, or room for one.
struct CompleteBeam {
  std::vector<int64_t> tokens = {};  ///< prompt included
  float score = kVeryLow;            ///< with the penalty for its length
  bool is_complete = false;
};

/// What is written for one prompt.
struct PromptBeams {
  int64_t number;                             ///< its row in the result
  std::vector<std::vector<int64_t>> running;  ///< tokens of each beam, prompt included
  std::vector<float> scores;                  ///< of the running beams
  std::vector<CompleteBeam> complete;         ///< as many as beams, the best first
  bool is_improvable = true;                  ///< a running beam could still beat a complete one
};

std::vector<std::vector<int64_t>> rows_on_host(const Tensor& ids) {
  const auto here = ids.to(torch::kCPU).contiguous();
  std::vector<std::vector<int64_t>> rows;
  for (int64_t i = 0; i < here.size(0); ++i) {
    const auto* first = here.const_data_ptr<int64_t>() + i * here.size(1);
    rows.emplace_back(first, first + here.size(1));
  }
  return rows;
}

/// transformers' beam search. The scores of tokens are computed on the model's device; which
/// sequences go on is decided on the host, in float32 as there.
class BeamSearch {
 public:
  BeamSearch(Decoder& decoder, const DecodingPlan& plan)
      : decoder_(decoder), plan_(plan), beams_(*plan.options.num_beams) {
    const auto rows = rows_on_host(decoder.prompt());
    prompt_length_ = length_ = decoder.prompt().size(1);
    const auto ends =
        plan.options.eos_token_id ? plan.options.eos_token_id->ids() : std::vector<int64_t>{};
    candidates_ = std::max<int64_t>(2, 1 + static_cast<int64_t>(ends.size())) * beams_;
    // A pad token of 0 counts as none here, as in transformers.
    fill_ = ends.empty() ? -1 : plan.pad_token.value_or(0) != 0 ? *plan.pad_token : ends[0];
    for (size_t i = 0; i < rows.size(); i += size_t(beams_)) {
      const auto begin = rows.begin() + std::ptrdiff_t(i);
      auto& prompt = prompts_.emplace_back(
          PromptBeams{int64_t(prompts_.size()), {begin, begin + beams_}, {}, {}});
      prompt.scores.assign(size_t(beams_), kVeryLow);  // at first all beams are the same
      prompt.scores[0] = 0.0F;
      prompt.complete.assign(size_t(beams_), {prompt.running[0]});
    }
    settled_.resize(prompts_.size());
  }

  Tensor run() {
    auto ids = decoder_.prompt();
    while (true) {
      const auto scores = plan_.process(ids, decoder_.next_logits(ids).log_softmax(-1));
      const auto candidates = best_continuations(scores);
      const bool is_over = plan_.stop.is_over(length_ + 1);
      std::vector<int64_t> origins;
      bool all_hit = true;
      for (size_t place = 0; place < prompts_.size(); ++place)
        all_hit &=
            advance(prompts_[place], candidates[place], is_over, int64_t(place) * beams_, origins);
      ++length_;
      for (auto& prompt : prompts_) check_improvable(prompt);
      const bool goes_on =
          std::any_of(prompts_.begin(), prompts_.end(),
                      [&](const PromptBeams& prompt) { return !is_settled(prompt); });
      if (!goes_on || (all_hit && (is_over || left_out_ == 0))) break;
      select(std::move(origins));
      ids = running_ids();
    }
    for (auto& prompt : prompts_) settled_[size_t(prompt.number)] = std::move(prompt.complete);
    return best();
  }

 private:
  bool stops_early() const {
    return plan_.options.early_stopping->kind() == EarlyStopping::Kind::yes;
  }
  static bool is_full(const PromptBeams& prompt) {
    return std::all_of(prompt.complete.begin(), prompt.complete.end(),
                       [](const CompleteBeam& beam) { return beam.is_complete; });
  }
  /// Whether nothing can change any more in what is complete.
  bool is_settled(const PromptBeams& prompt) const {
    return !prompt.is_improvable || (stops_early() && is_full(prompt));
  }
  float divided(float score, int64_t tokens) const {
    return score /
           static_cast<float>(std::pow(static_cast<double>(tokens), *plan_.options.length_penalty));
  }

  /// The best (or drawn) extensions of all beams of each prompt, more than beams so that enough are
  /// left when some end.
  std::vector<std::vector<Continuation>> best_continuations(const Tensor& log_probs) const {
    std::vector<float> scores;
    OpenPrompts open{{}, int64_t(settled_.size())};
    for (const auto& prompt : prompts_) {
      scores.insert(scores.end(), prompt.scores.begin(), prompt.scores.end());
      open.numbers.push_back(prompt.number);
    }
    return *plan_.options.do_sample
               ? drawn_continuations(log_probs, scores, beams_, candidates_, open)
               : top_continuations(log_probs, scores, beams_, candidates_);
  }

  /// One token more for a prompt. Appends the rows that the beams came from to `origins`; returns
  /// whether every candidate ended.
  bool advance(PromptBeams& prompt, const std::vector<Continuation>& candidates, bool is_over,
               int64_t first_row, std::vector<int64_t>& origins) const {
    std::vector<char> hits;
    for (const auto& each : candidates)
      hits.push_back(is_over ||
                     plan_.stop.ends_with(prompt.running[size_t(each.beam)], each.token));
    const auto extended = [&](const Continuation& each) {
      auto tokens = prompt.running[size_t(each.beam)];
      tokens.push_back(each.token);
      return tokens;
    };
    // Only the best candidates may become complete; the others are there to go on with.
    const bool is_closed = stops_early() && is_full(prompt);
    auto complete = std::move(prompt.complete);
    std::vector<float> scores;
    for (const auto& beam : complete) scores.push_back(beam.score);
    for (size_t i = 0; i < candidates.size(); ++i) {
      const bool ended = hits[i] && int64_t(i) < beams_;
      auto score = divided(candidates[i].score, length_ + 1 - prompt_length_);
      if (is_closed) score += kVeryLow;
      if (!prompt.is_improvable) score += kVeryLow;
      if (!ended) score += kVeryLow;
      scores.push_back(score);
    }
    std::vector<CompleteBeam> kept;
    for (const auto i : best_of(scores)) {
      if (i < complete.size()) {
        kept.push_back(std::move(complete[i]));
        continue;
      }
      const auto number = i - complete.size();
      kept.push_back(
          {extended(candidates[number]), scores[i], hits[number] && int64_t(number) < beams_});
    }
    prompt.complete = std::move(kept);

    scores.clear();
    for (size_t i = 0; i < candidates.size(); ++i)
      scores.push_back(candidates[i].score + (hits[i] ? kVeryLow : 0.0F));
    std::vector<std::vector<int64_t>> running;
    std::vector<float> running_scores;
    for (const auto i : best_of(scores)) {
      running.push_back(extended(candidates[i]));
      running_scores.push_back(scores[i]);
      origins.push_back(first_row + candidates[i].beam);
    }
    prompt.running = std::move(running);
    prompt.scores = std::move(running_scores);
    return std::all_of(hits.begin(), hits.end(), [](char hit) { return hit; });
  }

  /// The numbers of the highest scores, as many as beams.
  std::vector<size_t> best_of(const std::vector<float>& scores) const {
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    order.resize(size_t(beams_));
    return order;
  }

  void check_improvable(PromptBeams& prompt) const {
    const bool to_the_end = plan_.options.early_stopping->kind() == EarlyStopping::Kind::never &&
                            *plan_.options.length_penalty > 0.0;
    const auto possible =
        divided(prompt.scores[0], (to_the_end ? plan_.max_length : length_) - prompt_length_);
    const auto worst = std::min_element(prompt.complete.begin(), prompt.complete.end(),
                                        [](const CompleteBeam& a, const CompleteBeam& b) {
                                          return a.score < b.score;
                                        })
                           ->score;
    prompt.is_improvable =
        prompt.is_improvable &&
        std::any_of(prompt.complete.begin(), prompt.complete.end(), [&](const CompleteBeam& beam) {
          return possible > (beam.is_complete ? worst : kVeryLow);
        });
  }

  /// Lets the decoder go on with the rows that `origins` name. Prompts that are settled are left
  /// out once they are a quarter of all.
  void select(std::vector<int64_t> origins) {
    const auto options = torch::TensorOptions().dtype(torch::kLong);
    const auto device = decoder_.prompt().device();
    std::vector<int64_t> places, rows;
    for (size_t place = 0; place < prompts_.size(); ++place)
      if (!is_settled(prompts_[place])) places.push_back(int64_t(place));
    if (!plan_.may_leave_out_rows() || places.size() * 4 > prompts_.size() * 3)
      return decoder_.select_rows(torch::tensor(origins, options).to(device));
    std::vector<PromptBeams> kept;
    for (const auto place : places) {
      const auto begin = origins.begin() + place * beams_;
      rows.insert(rows.end(), begin, begin + beams_);
      kept.push_back(std::move(prompts_[size_t(place)]));
      prompts_[size_t(place)].number = -1;
    }
    for (auto& prompt : prompts_)
      if (prompt.number >= 0) settled_[size_t(prompt.number)] = std::move(prompt.complete);
    left_out_ += prompts_.size() - kept.size();
    prompts_ = std::move(kept);
    decoder_.keep_rows(torch::tensor(rows, options).to(device),
                       torch::tensor(places, options).to(device));
  }

  Tensor running_ids() const {
    auto ids = torch::empty({int64_t(prompts_.size()) * beams_, length_}, torch::kLong);
    auto* next = ids.mutable_data_ptr<int64_t>();
    for (const auto& prompt : prompts_)
      for (const auto& tokens : prompt.running)
        next = std::copy(tokens.begin(), tokens.end(), next);
    return ids.to(decoder_.prompt().device());
  }

  Tensor best() const {
    const auto returned = size_t(*plan_.options.num_return_sequences);
    size_t width = size_t(prompt_length_);
    for (const auto& beams : settled_)
      for (size_t i = 0; i < returned; ++i) width = std::max(width, beams[i].tokens.size());
    auto ids = torch::full({int64_t(settled_.size() * returned), int64_t(width)}, fill_,
                           torch::TensorOptions().dtype(torch::kLong));
    auto* row = ids.mutable_data_ptr<int64_t>();
    for (const auto& beams : settled_)
      for (size_t i = 0; i < returned; ++i, row += width)
        std::copy(beams[i].tokens.begin(), beams[i].tokens.end(), row);
    return ids.to(decoder_.prompt().device());
  }

  Decoder& decoder_;
  const DecodingPlan& plan_;
  int64_t beams_, candidates_ = 0, prompt_length_ = 0, length_ = 0, fill_ = 0;
  std::vector<PromptBeams> prompts_;                ///< those that the decoder has rows of
  std::vector<std::vector<CompleteBeam>> settled_;  ///< the results by prompt, in the end all
  size_t left_out_ = 0;                             ///< prompts that the decoder has no more
};

}  // namespace

Tensor beam_search(Decoder& decoder, const DecodingPlan& plan) {
  return BeamSearch(decoder, plan).run();
}

}  // namespace gradus
