#include <gradus/core/error.h>
#include <gradus/data/dataset.h>
#include <gradus/data/sampler.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gradus {
namespace {

void check_sizes(int64_t batch_size, int64_t rank, int64_t world) {
  if (batch_size >= 1 && world >= 1 && rank >= 0 && rank < world) return;
  throw Error("G-DATA-8", ErrorKind::usage,
              fmt::format("cannot make a sampler with batch size {}, rank {} of {}", batch_size,
                          rank, world),
              "The batch size is at least 1 and the rank goes from 0 to world - 1.");
}

std::vector<int64_t> grouped(const std::vector<int64_t>& lengths, int64_t batch_size, int64_t seed,
                             int64_t epoch) {
  const auto rows = static_cast<int64_t>(lengths.size());
  auto order = random_sampler(rows, seed)->order(epoch);
  if (rows == 0) return order;
  const int64_t multiple = std::clamp<int64_t>(rows / (batch_size * 4), 1, 50);
  const int64_t group = multiple * batch_size;
  const auto length = [&](int64_t index) { return lengths[static_cast<size_t>(index)]; };
  auto longest = order.begin();
  for (int64_t begin = 0; begin < rows; begin += group) {
    const auto first = order.begin() + begin;
    std::stable_sort(first, order.begin() + std::min(rows, begin + group),
                     [&](int64_t a, int64_t b) { return length(a) > length(b); });
    if (begin == 0 || length(*first) > length(*longest)) longest = first;
  }
  std::iter_swap(order.begin(), longest);  // an out-of-memory shows itself at the first step
  return order;
}

class LengthGroupedSampler final : public Sampler {
 public:
  LengthGroupedSampler(std::vector<int64_t> lengths, int64_t batch_size, int64_t seed)
      : lengths_(std::move(lengths)), batch_size_(batch_size), seed_(seed) {}
  int64_t size() const override { return static_cast<int64_t>(lengths_.size()); }
  std::vector<int64_t> order(int64_t epoch) const override {
    return grouped(lengths_, batch_size_, seed_, epoch);
  }

 private:
  std::vector<int64_t> lengths_;
  int64_t batch_size_;
  int64_t seed_;
};

class DistributedLengthGroupedSampler final : public Sampler {
 public:
  DistributedLengthGroupedSampler(std::vector<int64_t> lengths, int64_t batch_size, int64_t seed,
                                  int64_t rank, int64_t world, bool drop_last)
      : lengths_(std::move(lengths)),
        batch_size_(batch_size),
        seed_(seed),
        rank_(rank),
        world_(world) {
    const auto rows = static_cast<int64_t>(lengths_.size());
    size_ = drop_last ? rows / world : (rows + world - 1) / world;
  }
  int64_t size() const override { return size_; }
  std::vector<int64_t> order(int64_t epoch) const override {
    const auto all = grouped(lengths_, batch_size_, seed_, epoch);
    std::vector<int64_t> mine;
    for (int64_t i = 0; i < size_; ++i)
      mine.push_back(all[static_cast<size_t>(rank_ + i * world_) % all.size()]);
    return mine;
  }

 private:
  std::vector<int64_t> lengths_;
  int64_t batch_size_;
  int64_t seed_;
  int64_t rank_;
  int64_t world_;
  int64_t size_;
};

std::optional<int64_t> countable_length(const Value& value) {
  if (value.is_ints()) return value.ints().size();
  if (value.is_floats()) return value.floats().size();
  if (value.is_strings()) return value.strings().size();
  if (value.is_string()) return value.str().size();
  if (value.is_tensor() && value.tensor().dim() > 0) return value.tensor().size(0);
  if (value.is_nested() && value.json().is_array()) return value.json().size();
  return std::nullopt;
}

}  // namespace

std::shared_ptr<Sampler> length_grouped_sampler(std::vector<int64_t> lengths, int64_t batch_size,
                                                int64_t seed) {
  check_sizes(batch_size, 0, 1);
  return std::make_shared<LengthGroupedSampler>(std::move(lengths), batch_size, seed);
}

std::shared_ptr<Sampler> distributed_length_grouped_sampler(std::vector<int64_t> lengths,
                                                            int64_t batch_size, int64_t seed,
                                                            int64_t rank, int64_t world,
                                                            bool drop_last) {
  check_sizes(batch_size, rank, world);
  return std::make_shared<DistributedLengthGroupedSampler>(std::move(lengths), batch_size, seed,
                                                           rank, world, drop_last);
}

std::vector<int64_t> column_lengths(const Dataset& dataset, const std::string& name) {
  const int64_t rows = dataset.size();
  std::vector<int64_t> lengths;
  lengths.reserve(static_cast<size_t>(rows));
  for (int64_t index = 0; index < rows; ++index) {
    const auto row = dataset.get(index);
    const auto* value = row.find(name);
    const auto length = value == nullptr ? std::nullopt : countable_length(*value);
    if (!length) {
      throw Error("G-DATA-10", ErrorKind::data,
                  fmt::format("lengths are not known: row {} {}", index,
                              value == nullptr ? fmt::format("has no column '{}'", name)
                                               : fmt::format("holds {} in '{}', expected a list",
                                                             value->type_name(), name)),
                  "Grouping by length needs rows with input_ids, or a column of lengths "
                  "(length_column_name).");
    }
    lengths.push_back(*length);
  }
  return lengths;
}

}  // namespace gradus
