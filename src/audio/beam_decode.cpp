#include <gradus/audio/ctc_tokenizer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace gradus {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

double log_sum(double a, double b) {
  if (a == kNever) return b;
  if (b == kNever) return a;
  const auto larger = std::max(a, b);
  return larger + std::log1p(std::exp(-std::abs(a - b)));
}

/// Log probabilities of a prefix: of alignments that end with a blank, and of the others.
struct PrefixScore {
  double blank = kNever, symbol = kNever;
  double total() const { return log_sum(blank, symbol); }
};

using Prefixes = std::map<std::vector<int64_t>, PrefixScore>;

Prefixes best_prefixes(Prefixes all, int64_t count) {
  if (static_cast<int64_t>(all.size()) <= count) return all;
  std::vector<Prefixes::iterator> order;
  for (auto place = all.begin(); place != all.end(); ++place) order.push_back(place);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a->second.total() > b->second.total();
  });
  for (size_t i = static_cast<size_t>(count); i < order.size(); ++i) all.erase(order[i]);
  return all;
}

}  // namespace

BeamResult beam_decode(const torch::Tensor& log_probabilities, const BeamOptions& options) {
  const auto table = log_probabilities.to(torch::kCPU, torch::kDouble).contiguous();
  const auto frames = table.size(0), symbols = table.size(1);
  Prefixes prefixes;
  prefixes[{}].blank = 0.0;
  for (int64_t frame = 0; frame < frames; ++frame) {
    const auto* score = table.const_data_ptr<double>() + frame * symbols;
    Prefixes next;
    for (const auto& [prefix, before] : prefixes) {
      auto& same = next[prefix];
      same.blank = log_sum(same.blank, before.total() + score[options.blank]);
      if (!prefix.empty()) same.symbol = log_sum(same.symbol, before.symbol + score[prefix.back()]);
      for (int64_t symbol = 0; symbol < symbols; ++symbol) {
        if (symbol == options.blank || score[symbol] < options.threshold) continue;
        const bool repeats = !prefix.empty() && prefix.back() == symbol;
        const auto reached = (repeats ? before.blank : before.total()) + score[symbol];
        if (reached == kNever) continue;
        auto longer = prefix;
        longer.push_back(symbol);
        auto& target = next[std::move(longer)];
        target.symbol = log_sum(target.symbol, reached);
      }
    }
    prefixes = best_prefixes(std::move(next), std::max<int64_t>(options.beams, 1));
  }
  BeamResult best{{}, kNever};
  for (const auto& [prefix, score] : prefixes)
    if (best.log_probability == kNever || score.total() > best.log_probability)
      best = {prefix, score.total()};
  return best;
}

}  // namespace gradus
