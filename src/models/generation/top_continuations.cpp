#include "models/generation/top_continuations.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <tuple>

namespace gradus {

using torch::Tensor;

namespace {

using Continuations = std::vector<std::vector<Continuation>>;

/// (prompts, beams · vocabulary): the scores of the beams with each token.
Tensor joined_scores(const Tensor& log_probs, const std::vector<float>& scores, int64_t beams) {
  const auto vocabulary = log_probs.size(-1);
  const auto own = torch::tensor(scores, torch::kFloat).to(log_probs.device()).view({-1, beams, 1});
  return (log_probs.view({-1, beams, vocabulary}) + own).view({-1, beams * vocabulary});
}

Continuations on_host(const Tensor& scores, const Tensor& places, int64_t vocabulary) {
  const auto values = scores.to(torch::kCPU).contiguous(),
             numbers = places.to(torch::kCPU).contiguous();
  const auto* value = values.const_data_ptr<float>();
  const auto* place = numbers.const_data_ptr<int64_t>();
  Continuations result(size_t(values.size(0)));
  for (auto& prompt : result)
    for (int64_t i = 0; i < values.size(1); ++i, ++value, ++place)
      prompt.push_back({*value, *place / vocabulary, *place % vocabulary});
  return result;
}

/// Keeps the best, in order; of equal ones those that came first.
class BestContinuations {
 public:
  explicit BestContinuations(int64_t count) : count_(size_t(count)) { best_.reserve(count_ + 1); }
  /// What a score must exceed to be kept.
  float threshold() const {
    return best_.size() < count_ ? -std::numeric_limits<float>::infinity() : best_.back().score;
  }
  bool is_full() const { return best_.size() == count_; }
  void add(const Continuation& given) {
    const auto place = std::upper_bound(
        best_.begin(), best_.end(), given,
        [](const Continuation& a, const Continuation& b) { return a.score > b.score; });
    best_.insert(place, given);
    if (best_.size() > count_) best_.pop_back();
  }
  std::vector<Continuation> take() { return std::move(best_); }

 private:
  size_t count_;
  std::vector<Continuation> best_;
};

constexpr int64_t kBlock = 64;  // tokens that are looked at together

/// On the CPU without a copy of all scores: only blocks are opened whose highest score can count.
Continuations scanned(const Tensor& log_probs, const std::vector<float>& scores, int64_t beams,
                      int64_t count) {
  const auto vocabulary = log_probs.size(1), blocks = vocabulary / kBlock;
  const auto highest =
      blocks > 0 ? log_probs.narrow(1, 0, blocks * kBlock).unflatten(1, {blocks, kBlock}).amax(-1)
                 : Tensor();
  const auto* values = log_probs.const_data_ptr<float>();
  const auto* tops = blocks > 0 ? highest.const_data_ptr<float>() : nullptr;
  Continuations result(size_t(log_probs.size(0) / beams));
  at::parallel_for(0, int64_t(result.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t prompt = begin; prompt < end; ++prompt) {
      BestContinuations best(count);
      for (int64_t beam = 0; beam < beams; ++beam) {
        const auto row = prompt * beams + beam;
        const auto own = scores[size_t(row)];
        const auto look = [&](int64_t from, int64_t to) {
          for (auto token = from; token < to; ++token) {
            const auto score = values[row * vocabulary + token] + own;
            if (score > best.threshold() || !best.is_full()) best.add({score, beam, token});
          }
        };
        for (int64_t block = 0; block < blocks; ++block)
          if (tops[row * blocks + block] + own > best.threshold() || !best.is_full())
            look(block * kBlock, (block + 1) * kBlock);
        look(blocks * kBlock, vocabulary);
      }
      result[size_t(prompt)] = best.take();
    }
  });
  return result;
}

}  // namespace

Continuations top_continuations(const Tensor& log_probs, const std::vector<float>& scores,
                                int64_t beams, int64_t count) {
  if (log_probs.is_cpu() && log_probs.is_contiguous() && log_probs.scalar_type() == torch::kFloat)
    return scanned(log_probs, scores, beams, count);
  const auto [values, places] = joined_scores(log_probs, scores, beams).topk(count);
  return on_host(values, places, log_probs.size(-1));
}

Continuations drawn_continuations(const Tensor& log_probs, const std::vector<float>& scores,
                                  int64_t beams, int64_t count, const OpenPrompts& prompts) {
  const auto joined = joined_scores(log_probs, scores, beams);
  Tensor rows;
  if (joined.size(0) < prompts.all)
    rows = torch::tensor(prompts.numbers, torch::kLong).to(joined.device());
  const auto places = drawn_places(joined.softmax(-1), rows, prompts.all, count);
  return on_host(joined.gather(1, places), places, log_probs.size(-1));
}

Tensor drawn_places(const Tensor& probabilities, const Tensor& rows, int64_t all, int64_t count) {
  if (!rows.defined()) return probabilities.multinomial(count);
  // What is drawn for the others does not matter, so they get any probabilities.
  return torch::ones({all, probabilities.size(1)}, probabilities.options())
      .index_copy_(0, rows, probabilities)
      .multinomial(count)
      .index_select(0, rows);
}

}  // namespace gradus
