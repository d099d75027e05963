#include "runs/series.h"

#include <algorithm>
#include <cmath>

namespace gradus::runs {
namespace {

constexpr size_t kBlock = 64, kFan = 16;

/// Whether `value` counts as less than `than`; NaN is less than nothing.
bool is_less(double value, double than) {
  return value < than || (std::isnan(than) && !std::isnan(value));
}

bool is_more(double value, double than) {
  return value > than || (std::isnan(than) && !std::isnan(value));
}

/// Where part `part` of `parts` even parts of [begin, end) begins.
size_t part_begin(size_t begin, size_t end, size_t part, size_t parts) {
  return begin + (end - begin) * part / parts;
}

}  // namespace

void Series::add(int64_t step, double value, double time) {
  if (!steps_.empty() && step <= steps_.back()) drop_after(step - 1);
  steps_.push_back(step);
  values_.push_back(value);
  times_.push_back(time);
  sum_up(values_.size() - 1);
}

void Series::sum_up(size_t index) {
  size_t block = index / kBlock;
  for (size_t level = 0;; ++level, block /= kFan) {
    // The uppermost level is one that has a single block.
    if (level == levels_.size()) {
      if (level > 0 && levels_[level - 1].size() <= 1) return;
      levels_.emplace_back();
      if (level > 0)  // what is there already, below
        for (const auto& below = levels_[level - 1]; const auto& each : below) {
          const size_t at = size_t(&each - below.data()) / kFan;
          auto& blocks = levels_[level];
          if (blocks.size() <= at) {
            blocks.push_back(each);
            continue;
          }
          if (is_less(values_[each.least], values_[blocks[at].least]))
            blocks[at].least = each.least;
          if (is_more(values_[each.most], values_[blocks[at].most])) blocks[at].most = each.most;
        }
    }
    auto& blocks = levels_[level];
    if (blocks.size() <= block) {
      blocks.push_back({uint32_t(index), uint32_t(index)});
      continue;
    }
    if (is_less(values_[index], values_[blocks[block].least]))
      blocks[block].least = uint32_t(index);
    if (is_more(values_[index], values_[blocks[block].most])) blocks[block].most = uint32_t(index);
  }
}

void Series::drop_after(int64_t step) {
  const auto end = std::upper_bound(steps_.begin(), steps_.end(), step) - steps_.begin();
  const auto keep = size_t(end);
  if (keep == steps_.size()) return;
  steps_.resize(keep);
  values_.resize(keep);
  times_.resize(keep);
  // Blocks before the cut stay; the one that it runs through is summed up again.
  const size_t whole = keep / kBlock;
  levels_.resize(1);
  levels_[0].resize(whole);
  while (levels_.back().size() > 1) {
    const auto& below = levels_.back();
    std::vector<Extremes> above;
    for (size_t i = 0; i < below.size(); ++i) {
      if (i % kFan == 0) above.push_back(below[i]);
      auto& block = above.back();
      if (is_less(values_[below[i].least], values_[block.least])) block.least = below[i].least;
      if (is_more(values_[below[i].most], values_[block.most])) block.most = below[i].most;
    }
    levels_.push_back(std::move(above));
  }
  for (size_t i = whole * kBlock; i < keep; ++i) sum_up(i);
}

double Series::x_of(size_t index, Axis axis, double began) const {
  if (axis == Axis::step) return double(steps_[index]);
  return axis == Axis::clock ? times_[index] : times_[index] - began;
}

size_t Series::first_at(double x, Axis axis, double began) const {
  size_t low = 0, high = size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (x_of(middle, axis, began) < x)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

Series::Extremes Series::extremes(size_t begin, size_t end) const {
  Extremes found{uint32_t(begin), uint32_t(begin)};
  const auto take = [&](Extremes each) {
    if (is_less(values_[each.least], values_[found.least])) found.least = each.least;
    if (is_more(values_[each.most], values_[found.most])) found.most = each.most;
  };
  for (size_t at = begin; at < end;) {
    // The largest whole block that begins here.
    size_t size = 1, level = 0;
    for (size_t next = kBlock; level < levels_.size() && at % next == 0 && at + next <= end;
         next *= kFan) {
      size = next;
      ++level;
    }
    if (level == 0)
      take({uint32_t(at), uint32_t(at)});
    else
      take(levels_[level - 1][at / size]);
    at += size;
  }
  return found;
}

Curve Series::curve(const CurveQuery& query, double began) const {
  size_t begin = first_at(query.from, query.axis, began);
  size_t end = first_at(query.to, query.axis, began);
  if (begin > 0) --begin;
  end = std::min(end + 1, size());
  Curve found;
  if (query.smoothing > 0) {
    // As TensorBoard smooths: the weights of the beginning are corrected for.
    std::vector<double> x, y;
    double sum = 0, weight = 0;
    for (size_t i = 0; i < end; ++i) {
      if (std::isfinite(values_[i])) {
        sum = sum * query.smoothing + (1 - query.smoothing) * values_[i];
        weight = weight * query.smoothing + (1 - query.smoothing);
      }
      if (i < begin) continue;
      x.push_back(x_of(i, query.axis, began));
      y.push_back(std::isfinite(values_[i]) ? sum / weight : values_[i]);
    }
    return thinned(x, y, query.points);
  }
  const auto take = [&](size_t index) {
    found.x.push_back(x_of(index, query.axis, began));
    found.y.push_back(values_[index]);
  };
  if (begin >= end) return found;
  if (end - begin <= std::max<size_t>(query.points, 4)) {
    for (size_t i = begin; i < end; ++i) take(i);
    return found;
  }
  // The ends are kept as they are.
  const size_t parts = std::max<size_t>(query.points / 2, 2) - 1;
  take(begin);
  for (size_t part = 0; part < parts; ++part) {
    const auto low = part_begin(begin + 1, end - 1, part, parts);
    const auto high = part_begin(begin + 1, end - 1, part + 1, parts);
    const auto [least, most] = extremes(low, high);
    take(std::min(least, most));
    if (least != most) take(std::max(least, most));
  }
  take(end - 1);
  return found;
}

Curve thinned(std::span<const double> x, std::span<const double> y, size_t points) {
  if (x.size() <= std::max<size_t>(points, 4)) return {{x.begin(), x.end()}, {y.begin(), y.end()}};
  const size_t parts = std::max<size_t>(points / 2, 2) - 1, end = x.size() - 1;
  Curve found;
  const auto take = [&](size_t index) {
    found.x.push_back(x[index]);
    found.y.push_back(y[index]);
  };
  take(0);
  for (size_t part = 0; part < parts; ++part) {
    const auto low = part_begin(1, end, part, parts), high = part_begin(1, end, part + 1, parts);
    size_t least = low, most = low;
    for (size_t i = low; i < high; ++i) {
      if (is_less(y[i], y[least])) least = i;
      if (is_more(y[i], y[most])) most = i;
    }
    take(std::min(least, most));
    if (least != most) take(std::max(least, most));
  }
  take(end);
  return found;
}

}  // namespace gradus::runs
