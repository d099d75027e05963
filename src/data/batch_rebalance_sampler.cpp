#include <gradus/core/error.h>
#include <gradus/data/sampler.h>

#include <fmt/format.h>

#include <limits>
#include <mutex>
#include <numeric>
#include <set>

namespace gradus {
namespace {

struct MeasuredRow {
  int64_t index;
  int64_t length;
};

// Linear layers and padding, and the square of the length for attention. Written as Python
// evaluates it: ties depend on the last bit.
double padded_cost(int64_t rows, int64_t longest) {
  return double(rows * longest) + 0.001 * double(rows) * double(longest) * double(longest);
}

// The order in which CPython goes through a set of small numbers that were put in one after the
// other: the places of its hash table. The peer tops up groups in this order.
std::vector<int64_t> python_set_order(const std::vector<int64_t>& numbers) {
  constexpr size_t kLinearProbes = 9;
  std::vector<int64_t> table(8, -1);
  const auto place = [&](int64_t number) {
    const size_t mask = table.size() - 1;
    auto perturb = static_cast<size_t>(number);
    for (size_t i = perturb & mask;; perturb >>= 5, i = (i * 5 + 1 + perturb) & mask)
      for (size_t probe = i; probe <= (i + kLinearProbes <= mask ? i + kLinearProbes : i); ++probe)
        if (table[probe] < 0) return void(table[probe] = number);
  };
  size_t used = 0;
  for (const auto number : numbers) {
    place(number);
    if (++used * 5 < (table.size() - 1) * 3) continue;
    size_t size = 8;
    while (size <= used * 4) size *= 2;
    for (const auto moved : std::exchange(table, std::vector<int64_t>(size, -1)))
      if (moved >= 0) place(moved);
  }
  std::erase(table, -1);
  return table;
}

// Cuts the rows of one optimizer step, sorted by falling length, into groups of nearly equal cost:
// one row at a time goes from the dearest group to the cheapest. Groups that cannot give any more
// are frozen with those of their slot, which are topped up first.
class GroupBalance {
 public:
  GroupBalance(const std::vector<MeasuredRow>& rows, int64_t groups, int64_t world,
               int64_t most_moves)
      : rows_(rows),
        world_(static_cast<size_t>(world)),
        frozen_(static_cast<size_t>(groups), false) {
    const auto all = static_cast<int64_t>(rows.size());
    for (int64_t i = 0; i < groups; ++i)
      counts_.push_back(all / groups + (i < all % groups ? 1 : 0));
    best_ = counts_;
    balance(std::max(groups * 30, most_moves));
  }

  /// Rows of each group.
  const std::vector<int64_t>& counts() const { return best_; }
  /// The groups from the dearest to the cheapest.
  std::vector<size_t> ranking() const { return by_falling_cost(costs_of(best_)); }

 private:
  using Counts = std::vector<int64_t>;
  using Costs = std::vector<double>;

  Costs costs_of(const Counts& counts) const {
    Costs costs;
    size_t first = 0;
    for (const auto count : counts) {
      costs.push_back(padded_cost(count, rows_[first].length));
      first += static_cast<size_t>(count);
    }
    return costs;
  }

  static std::vector<size_t> by_falling_cost(const Costs& costs) {
    std::vector<size_t> ranking(costs.size());
    std::iota(ranking.begin(), ranking.end(), size_t{0});
    std::stable_sort(ranking.begin(), ranking.end(),
                     [&](size_t a, size_t b) { return costs[a] > costs[b]; });
    return ranking;
  }

  void balance(int64_t most_moves) {
    std::set<Counts> seen;
    double best_spread = std::numeric_limits<double>::infinity();
    for (int64_t move = 0; move < most_moves && seen.insert(counts_).second; ++move) {
      const auto costs = costs_of(counts_);
      std::vector<size_t> active;
      for (size_t i = 0; i < costs.size(); ++i)
        if (!frozen_[i]) active.push_back(i);
      if (active.size() <= 1) return;
      const auto cheaper = [&](size_t a, size_t b) { return costs[a] < costs[b]; };
      const size_t dearest = *std::max_element(active.begin(), active.end(), cheaper),
                   cheapest = *std::min_element(active.begin(), active.end(), cheaper);
      const double spread = costs[dearest] - costs[cheapest];
      if (spread < best_spread) {
        best_spread = spread;
        best_ = counts_;
      }
      if (spread == 0) return;
      if (counts_[dearest] > 1) {
        --counts_[dearest];
        ++counts_[cheapest];
      } else {
        freeze_slot_of(dearest, costs);
      }
    }
  }

  // The slot: the `world` groups that would be trained at the same time. None of them may become
  // dearer than `dearest`.
  void freeze_slot_of(size_t dearest, const Costs& costs) {
    const auto ranking = by_falling_cost(costs);
    const auto rank =
        static_cast<size_t>(std::find(ranking.begin(), ranking.end(), dearest) - ranking.begin());
    const auto first = ranking.begin() + static_cast<std::ptrdiff_t>(rank / world_ * world_);
    const std::set<size_t> slot(first, first + static_cast<std::ptrdiff_t>(world_));
    for (const auto number : python_set_order({first, first + static_cast<std::ptrdiff_t>(world_)}))
      if (const auto group = static_cast<size_t>(number); group != dearest && !frozen_[group])
        top_up(group, slot, costs[dearest]);
    for (const auto group : slot) frozen_[group] = true;
  }

  void top_up(size_t group, const std::set<size_t>& slot, double most) {
    for (;;) {
      const auto first = std::accumulate(
          counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(group), int64_t{0});
      if (padded_cost(counts_[group] + 1, rows_[static_cast<size_t>(first)].length) > most) return;
      const auto costs = costs_of(counts_);
      std::optional<size_t> donor;
      for (size_t i = 0; i < costs.size(); ++i)
        if (!frozen_[i] && !slot.contains(i) && counts_[i] > 1 &&
            (!donor || costs[i] < costs[*donor]))
          donor = i;
      if (!donor) return;
      ++counts_[group];
      --counts_[*donor];
    }
  }

  const std::vector<MeasuredRow>& rows_;
  size_t world_;
  std::vector<bool> frozen_;
  Counts counts_, best_;
};

using Lengths = std::shared_ptr<const std::vector<int64_t>>;

class RebalancedBatches final : public BatchOrder {
 public:
  RebalancedBatches(Lengths lengths, const BatchRebalanceOptions& options,
                    std::shared_ptr<const IndexOrder> order)
      : lengths_(std::move(lengths)), options_(options), order_(std::move(order)) {}

  int64_t size() const override {
    const auto rows = order_->size(), step = options_.effective_batch_size;
    return (options_.drop_last ? rows / step : (rows + step - 1) / step) *
           options_.gradient_accumulation_steps;
  }

  void read(int64_t number, std::vector<int64_t>& indices) const override {
    const std::scoped_lock lock(mutex_);  // the batches of a step are made together, and mostly
                                          // asked for one after the other
    const auto step = number / options_.gradient_accumulation_steps;
    if (step != step_) {
      batches_ = batches_of(rows_of(step));
      step_ = step;
    }
    indices = batches_[static_cast<size_t>(number % options_.gradient_accumulation_steps)];
  }

 private:
  int64_t groups() const { return options_.world * options_.gradient_accumulation_steps; }

  // The rows of an optimizer step of all processes; a last one that is too short for every group
  // goes on with the first rows.
  std::vector<MeasuredRow> rows_of(int64_t step) const {
    const auto first = step * options_.effective_batch_size,
               stored = std::min(options_.effective_batch_size, order_->size() - first);
    std::vector<int64_t> indices(static_cast<size_t>(std::max(stored, groups())));
    order_->read(first, std::span(indices).first(static_cast<size_t>(stored)));
    for (auto i = stored; i < static_cast<int64_t>(indices.size()); ++i)
      order_->read((i - stored) % order_->size(),
                   std::span(indices).subspan(static_cast<size_t>(i), 1));
    std::vector<MeasuredRow> rows;
    for (const auto index : indices)
      rows.push_back({index, (*lengths_)[static_cast<size_t>(index)]});
    return rows;
  }

  // The batches of this process: the dearest `world` groups are trained first, the next ones then,
  // and so on.
  std::vector<std::vector<int64_t>> batches_of(std::vector<MeasuredRow> rows) const {
    std::stable_sort(rows.begin(), rows.end(), [](const MeasuredRow& a, const MeasuredRow& b) {
      return a.length > b.length;
    });
    const GroupBalance balance(rows, groups(), options_.world, options_.effective_batch_size);
    const auto& counts = balance.counts();
    const auto ranking = balance.ranking();
    std::vector<std::vector<int64_t>> batches;
    for (auto at = options_.rank; at < groups(); at += options_.world) {
      const auto group = ranking[static_cast<size_t>(at)];
      const auto first = std::accumulate(
          counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(group), int64_t{0});
      auto& batch = batches.emplace_back();
      for (auto i = first; i < first + counts[group]; ++i)
        batch.push_back(rows[static_cast<size_t>(i)].index);
    }
    return batches;
  }

  Lengths lengths_;
  BatchRebalanceOptions options_;
  std::shared_ptr<const IndexOrder> order_;
  mutable std::mutex mutex_;
  mutable int64_t step_ = -1;
  mutable std::vector<std::vector<int64_t>> batches_;
};

class BatchRebalanceSampler final : public BatchSampler {
 public:
  BatchRebalanceSampler(std::vector<int64_t> lengths, const BatchRebalanceOptions& options)
      : lengths_(std::make_shared<const std::vector<int64_t>>(std::move(lengths))),
        options_(options) {}
  std::shared_ptr<const BatchOrder> open(int64_t epoch) const override {
    const auto rows = static_cast<int64_t>(lengths_->size());
    return std::make_shared<RebalancedBatches>(
        lengths_, options_,
        (options_.shuffle ? random_sampler(rows, options_.seed) : sequential_sampler(rows))
            ->open(epoch));
  }
  int64_t size() const override {
    return RebalancedBatches(lengths_, options_,
                             sequential_sampler(static_cast<int64_t>(lengths_->size()))->open(0))
        .size();
  }

 private:
  Lengths lengths_;
  BatchRebalanceOptions options_;
};

}  // namespace

std::shared_ptr<BatchSampler> batch_rebalance_sampler(std::vector<int64_t> lengths,
                                                      BatchRebalanceOptions options) {
  const auto& o = options;
  if (o.gradient_accumulation_steps < 1 || o.world < 1 || o.rank < 0 || o.rank >= o.world ||
      o.effective_batch_size < o.world * o.gradient_accumulation_steps)
    throw Error("G-DATA-8", ErrorKind::usage,
                fmt::format("cannot make a batch rebalance sampler with {} rows per step, {} "
                            "accumulation steps, rank {} of {}",
                            o.effective_batch_size, o.gradient_accumulation_steps, o.rank, o.world),
                "A step needs at least one row for every process and accumulation step; the rank "
                "goes from 0 to world - 1.");
  return std::make_shared<BatchRebalanceSampler>(std::move(lengths), options);
}

}  // namespace gradus
