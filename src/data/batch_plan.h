#pragma once

#include <gradus/data/data_loader.h>

namespace gradus::data {

/// Which places of the order form batch number k of this process: arithmetic, so any batch can be
/// asked for at once.
///
/// The order is cut into steps of `step_rows()`; every process takes `part_rows()` of each. At the
/// end it goes on with the first rows when processes must have equally many
/// (`accelerate.BatchSamplerShard`).
class BatchPlan {
 public:
  /// Throws G-DATA-8 when the sizes make no sense.
  BatchPlan(int64_t batch_size, bool drop_last, const DataShard& shard);

  int64_t step_rows() const { return step_; }
  int64_t part_rows() const { return part_; }
  /// Where this process's part of a step begins.
  int64_t part_begin() const { return begin_; }
  bool fill_up() const { return fill_up_; }
  bool drop_last() const { return drop_last_; }

  /// Batches of a pass over `rows` rows.
  int64_t batches(int64_t rows) const;
  /// The indices of batch `number`.
  void read(const IndexOrder& order, int64_t number, std::vector<int64_t>& indices) const;

 private:
  int64_t step_;
  int64_t part_;
  int64_t begin_;
  bool drop_last_;
  bool fill_up_;
};

/// The batches of pass `epoch` over a map-style data set: those of the batch sampler, or the
/// sampler's order cut by a `BatchPlan`. `state` is that of an order begun before, or null.
std::shared_ptr<const BatchOrder> open_batches(const DataLoaderOptions& options, int64_t epoch,
                                               const nlohmann::json& state);

}  // namespace gradus::data
