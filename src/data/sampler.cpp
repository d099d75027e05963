#include <gradus/data/sampler.h>

#include "data/random_order.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randperm.h>
#include <nlohmann/json.hpp>

#include <numeric>

namespace gradus {
namespace {

class StoredOrder : public IndexOrder {
 public:
  explicit StoredOrder(std::vector<int64_t> indices) : indices_(std::move(indices)) {}
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  void read(int64_t first, std::span<int64_t> out) const override {
    std::copy_n(indices_.begin() + first, out.size(), out.begin());
  }

 private:
  std::vector<int64_t> indices_;
};

class ShuffledOrder : public IndexOrder {
 public:
  explicit ShuffledOrder(data::IndexBuffer indices) : indices_(std::move(indices)) {}
  int64_t size() const override { return static_cast<int64_t>(indices_.values().size()); }
  void read(int64_t first, std::span<int64_t> out) const override {
    std::copy_n(indices_.values().begin() + first, out.size(), out.begin());
  }

 private:
  data::IndexBuffer indices_;
};

class Counting final : public IndexOrder {
 public:
  explicit Counting(int64_t rows) : rows_(rows) {}
  int64_t size() const override { return rows_; }
  void read(int64_t first, std::span<int64_t> out) const override {
    std::iota(out.begin(), out.end(), first);
  }

 private:
  int64_t rows_;
};

class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t rows) : rows_(rows) {}
  int64_t size() const override { return rows_; }
  std::vector<int64_t> order(int64_t) const override {
    std::vector<int64_t> result(static_cast<size_t>(rows_));
    std::iota(result.begin(), result.end(), int64_t{0});
    return result;
  }
  std::shared_ptr<const IndexOrder> open(int64_t) const override {
    return std::make_shared<Counting>(rows_);
  }

 private:
  int64_t rows_;
};

std::vector<int64_t> torch_randperm(int64_t rows, uint64_t seed) {
  const auto generator = at::detail::createCPUGenerator(seed);
  const auto indices = at::randperm(rows, generator, at::kLong);
  const auto* data = indices.const_data_ptr<int64_t>();
  return {data, data + rows};
}

/// Rows in the order that `seed` gives, which is kept to give it again.
template <class Order>
class DrawnOrder final : public Order {
 public:
  template <class Indices>
  DrawnOrder(Indices indices, int64_t seed) : Order(std::move(indices)), seed_(seed) {}
  nlohmann::json state() const override { return {{"seed", seed_}}; }

 private:
  int64_t seed_;
};

class GlobalRandomSampler final : public Sampler {
 public:
  explicit GlobalRandomSampler(int64_t rows) : rows_(rows) {}
  int64_t size() const override { return rows_; }
  std::vector<int64_t> order(int64_t) const override {
    return torch_randperm(rows_, static_cast<uint64_t>(draw_seed()));
  }
  std::shared_ptr<const IndexOrder> open(int64_t) const override { return drawn(draw_seed()); }
  std::shared_ptr<const IndexOrder> reopen(int64_t, const nlohmann::json& state) const override {
    return drawn(state.at("seed").get<int64_t>());
  }

 private:
  /// As `RandomSampler.__iter__` of torch does.
  static int64_t draw_seed() { return at::empty({}, at::kLong).random_().item<int64_t>(); }

  std::shared_ptr<const IndexOrder> drawn(int64_t seed) const {
    const auto bits = static_cast<uint64_t>(seed);
    if (data::fits_random_order(rows_))
      return std::make_shared<DrawnOrder<ShuffledOrder>>(data::random_order(rows_, bits), seed);
    return std::make_shared<DrawnOrder<StoredOrder>>(torch_randperm(rows_, bits), seed);
  }

  int64_t rows_;
};

class RandomSampler final : public Sampler {
 public:
  RandomSampler(int64_t rows, int64_t seed) : rows_(rows), seed_(seed) {}
  int64_t size() const override { return rows_; }
  std::vector<int64_t> order(int64_t epoch) const override {
    if (!data::fits_random_order(rows_)) return torch_randperm(rows_, seed_of(epoch));
    const auto indices = data::random_order(rows_, seed_of(epoch));
    return {indices.values().begin(), indices.values().end()};
  }
  std::shared_ptr<const IndexOrder> open(int64_t epoch) const override {
    if (!data::fits_random_order(rows_)) return Sampler::open(epoch);
    return std::make_shared<ShuffledOrder>(data::random_order(rows_, seed_of(epoch)));
  }

 private:
  uint64_t seed_of(int64_t epoch) const { return static_cast<uint64_t>(seed_ + epoch); }

  int64_t rows_;
  int64_t seed_;
};

}  // namespace

nlohmann::json IndexOrder::state() const { return nullptr; }
nlohmann::json BatchOrder::state() const { return nullptr; }

std::shared_ptr<const IndexOrder> Sampler::open(int64_t epoch) const {
  return std::make_shared<StoredOrder>(order(epoch));
}

std::shared_ptr<const IndexOrder> Sampler::reopen(int64_t epoch, const nlohmann::json&) const {
  return open(epoch);
}

std::shared_ptr<Sampler> sequential_sampler(int64_t rows) {
  return std::make_shared<SequentialSampler>(rows);
}

std::shared_ptr<Sampler> random_sampler(int64_t rows, int64_t seed) {
  return std::make_shared<RandomSampler>(rows, seed);
}

std::shared_ptr<Sampler> global_random_sampler(int64_t rows) {
  return std::make_shared<GlobalRandomSampler>(rows);
}

}  // namespace gradus
