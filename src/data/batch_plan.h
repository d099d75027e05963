#pragma once

#include <gradus/data/data_loader.h>

namespace gradus::data {

/// Which places of the order form batch number k of this process: arithmetic, so any batch can be
/// asked for at once.
///
/// The order is cut into steps of `step_rows()`; every process takes a `part` of each. At the
/// end it goes on with the first rows when processes must have equally many
/// (`accelerate.BatchSamplerShard`), or shares what is left (`accelerate.DataLoaderDispatcher`).
class BatchPlan {
 public:
  /// Throws G-DATA-8 when the sizes make no sense.
  BatchPlan(int64_t batch_size, bool drop_last, const DataShard& shard);

  int64_t step_rows() const { return step_; }
  /// Whether several processes share the rows.
  bool is_shared() const { return world_ > 1; }
  bool fill_up() const { return fill_up_; }
  bool drop_last() const { return drop_last_; }

  /// This process's places in a step that has `rows` rows; those from `rows` on are filled with the
  /// first rows of the pass.
  struct Part {
    int64_t begin;
    int64_t end;
  };
  Part part(int64_t rows) const;
  /// The number of batch `number` of this process among those of all.
  int64_t global_number(int64_t number) const { return number * world_ + rank_; }

  /// Batches of a pass over `rows` rows.
  int64_t batches(int64_t rows) const;
  /// The indices of batch `number`.
  void read(const IndexOrder& order, int64_t number, std::vector<int64_t>& indices) const;

 private:
  int64_t rank_;
  int64_t world_;
  int64_t step_;
  bool drop_last_;
  bool fill_up_;
  bool dispatch_;
};

/// The batches of pass `epoch` over a map-style data set: those of the batch sampler, or the
/// sampler's order cut by a `BatchPlan`. `state` is that of an order begun before, or null.
std::shared_ptr<const BatchOrder> open_batches(const DataLoaderOptions& options, int64_t epoch,
                                               const nlohmann::json& state);

}  // namespace gradus::data
