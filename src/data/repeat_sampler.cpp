#include <gradus/core/error.h>
#include <gradus/data/sampler.h>

#include "data/random_order.h"

#include <fmt/format.h>

#include <numeric>

namespace gradus {
namespace {

/// A list of groups, each written out `repeat_count` times with every index `mini_repeat_count`
/// times in a row.
class RepeatedOrder final : public IndexOrder {
 public:
  RepeatedOrder(std::vector<int64_t> indices, RepeatSamplerOptions options)
      : indices_(std::move(indices)), options_(options) {}
  int64_t size() const override {
    return static_cast<int64_t>(indices_.size()) / options_.batch_size * group();
  }
  void read(int64_t first, std::span<int64_t> out) const override {
    for (auto& index : out) {
      const int64_t chunk = first / group();
      const int64_t within = first % group() % (options_.batch_size * options_.mini_repeat_count);
      index = indices_[static_cast<size_t>(chunk * options_.batch_size +
                                           within / options_.mini_repeat_count)];
      ++first;
    }
  }

 private:
  int64_t group() const {
    return options_.batch_size * options_.mini_repeat_count * options_.repeat_count;
  }

  std::vector<int64_t> indices_;
  RepeatSamplerOptions options_;
};

class RepeatSampler final : public Sampler {
 public:
  RepeatSampler(int64_t rows, RepeatSamplerOptions options) : rows_(rows), options_(options) {}
  int64_t size() const override {
    return rows_ / options_.batch_size * options_.batch_size * options_.mini_repeat_count *
           options_.repeat_count;
  }
  std::vector<int64_t> order(int64_t epoch) const override {
    std::vector<int64_t> result(static_cast<size_t>(size()));
    open(epoch)->read(0, result);
    return result;
  }
  std::shared_ptr<const IndexOrder> open(int64_t epoch) const override {
    return std::make_shared<RepeatedOrder>(indices(epoch), options_);
  }

 private:
  /// The generator goes on from pass to pass; a permutation takes rows - 1 numbers of it, so
  /// earlier passes are skipped.
  std::vector<int64_t> indices(int64_t epoch) const {
    std::vector<int64_t> result(static_cast<size_t>(rows_));
    std::iota(result.begin(), result.end(), int64_t{0});
    if (!options_.shuffle) return result;
    data::TorchRandom random(static_cast<uint64_t>(options_.seed));
    for (int64_t i = 0; i < epoch * (rows_ - 1); ++i) random.next();
    for (int64_t i = 0; i < rows_ - 1; ++i) {
      std::swap(result[static_cast<size_t>(i)],
                result[static_cast<size_t>(i + random.next() % static_cast<uint32_t>(rows_ - i))]);
    }
    return result;
  }

  int64_t rows_;
  RepeatSamplerOptions options_;
};

class ShardSampler final : public Sampler {
 public:
  ShardSampler(int64_t rows, int64_t batch_size, int64_t rank, int64_t world, bool drop_last)
      : rows_(rows), batch_size_(batch_size), rank_(rank), world_(world) {
    const int64_t step = batch_size * world;
    size_ = (drop_last ? rows / step : (rows + step - 1) / step) * batch_size;
  }
  int64_t size() const override { return size_; }
  std::vector<int64_t> order(int64_t) const override {
    std::vector<int64_t> result(static_cast<size_t>(size_));
    for (int64_t i = 0; i < size_; ++i) {
      const int64_t place = (i / batch_size_ * world_ + rank_) * batch_size_ + i % batch_size_;
      result[static_cast<size_t>(i)] = place % rows_;
    }
    return result;
  }

 private:
  int64_t rows_;
  int64_t batch_size_;
  int64_t rank_;
  int64_t world_;
  int64_t size_;
};

}  // namespace

std::shared_ptr<Sampler> repeat_sampler(int64_t rows, RepeatSamplerOptions options) {
  if (options.mini_repeat_count < 1 || options.batch_size < 1 || options.repeat_count < 1 ||
      !data::fits_random_order(rows)) {
    throw Error(
        "G-DATA-8", ErrorKind::usage,
        fmt::format(
            "repeat_sampler over {} rows with mini_repeat_count {}, batch_size {}, repeat_count {}",
            rows, options.mini_repeat_count, options.batch_size, options.repeat_count),
        "All three counts are at least 1, and the rows below 214 million.");
  }
  return std::make_shared<RepeatSampler>(rows, options);
}

std::shared_ptr<Sampler> shard_sampler(int64_t rows, int64_t batch_size, int64_t rank,
                                       int64_t world, bool drop_last) {
  if (batch_size < 1 || world < 1 || rank < 0 || rank >= world) {
    throw Error(
        "G-DATA-8", ErrorKind::usage,
        fmt::format("shard_sampler with batch size {}, rank {} of {}", batch_size, rank, world),
        "The batch size is at least 1 and the rank goes from 0 to world - 1.");
  }
  return std::make_shared<ShardSampler>(rows, batch_size, rank, world, drop_last);
}

}  // namespace gradus
