#include "data/batch_plan.h"

#include <gradus/core/error.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gradus::data {
namespace {

class CutOrder final : public BatchOrder {
 public:
  CutOrder(const BatchPlan& plan, std::shared_ptr<const IndexOrder> order)
      : plan_(plan), order_(std::move(order)) {}
  int64_t size() const override { return plan_.batches(order_->size()); }
  void read(int64_t number, std::vector<int64_t>& indices) const override {
    plan_.read(*order_, number, indices);
  }
  nlohmann::json state() const override { return order_->state(); }

 private:
  BatchPlan plan_;
  std::shared_ptr<const IndexOrder> order_;
};

}  // namespace

BatchPlan::BatchPlan(int64_t batch_size, bool drop_last, const DataShard& shard)
    : rank_(shard.rank),
      world_(shard.world),
      drop_last_(drop_last),
      fill_up_(shard.world > 1 && (shard.even_batches || shard.dispatch) && !drop_last),
      dispatch_(shard.dispatch) {
  if (batch_size < 1)
    throw Error("G-DATA-8", ErrorKind::usage,
                fmt::format("batch_size is {}, expected at least 1", batch_size),
                "Set a positive batch size.");
  if (shard.world < 1 || shard.rank < 0 || shard.rank >= shard.world) {
    throw Error("G-DATA-8", ErrorKind::usage,
                fmt::format("rank {} of {} processes", shard.rank, shard.world),
                "The rank goes from 0 to world - 1.");
  }
  if (shard.split_batches && batch_size % shard.world != 0) {
    throw Error("G-DATA-8", ErrorKind::usage,
                fmt::format("split_batches with a batch size of {} for {} processes", batch_size,
                            shard.world),
                "The batch size must be a multiple of the number of processes.");
  }
  step_ = shard.split_batches ? batch_size : batch_size * shard.world;
}

BatchPlan::Part BatchPlan::part(int64_t rows) const {
  const int64_t size = fill_up_ && dispatch_ ? (rows + world_ - 1) / world_ : step_ / world_;
  const Part whole{size * rank_, size * (rank_ + 1)};
  if (fill_up_) return whole;
  return {std::min(whole.begin, rows), std::min(whole.end, rows)};
}

int64_t BatchPlan::batches(int64_t rows) const {
  if (drop_last_) return rows / step_;
  const int64_t offset = fill_up_ ? 0 : step_ / world_ * rank_;
  return rows <= offset ? 0 : (rows - offset + step_ - 1) / step_;
}

void BatchPlan::read(const IndexOrder& order, int64_t number, std::vector<int64_t>& indices) const {
  const int64_t rows = order.size();
  const auto [begin, end] = part(std::min(step_, rows - number * step_));
  const int64_t first = number * step_ + begin;
  const int64_t stored = std::clamp<int64_t>(rows - first, 0, end - begin);
  indices.resize(static_cast<size_t>(end - begin));
  if (stored > 0) order.read(first, std::span(indices).first(static_cast<size_t>(stored)));
  for (int64_t i = stored; i < static_cast<int64_t>(indices.size()); ++i) {
    order.read((first + i - rows) % rows, std::span(indices).subspan(static_cast<size_t>(i), 1));
  }
}

std::shared_ptr<const BatchOrder> open_batches(const DataLoaderOptions& options, int64_t epoch,
                                               const nlohmann::json& state) {
  if (options.batch_sampler) return options.batch_sampler->open(epoch);
  const auto sampler =
      options.sampler ? options.sampler : sequential_sampler(*options.dataset.size());
  return std::make_shared<CutOrder>(
      BatchPlan(options.batch_size, options.drop_last, options.shard),
      state.is_null() ? sampler->open(epoch) : sampler->reopen(epoch, state));
}

}  // namespace gradus::data
