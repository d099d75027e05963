#pragma once

#include <gradus/data/batch.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>

namespace gradus {

/// `elastic_order`: every process makes the batches of a single one and takes its rows of each, so
/// that steps do not depend on the number of processes.
///
/// The losses of the rows are weighed, so that their mean over the processes, and with it that of
/// the gradients, is what one process computes for the whole batch.
/// Thread-safety: none.
class ElasticOrder {
 public:
  /// For process `rank` of `world`, whose losses are on `device`.
  ElasticOrder(int64_t rank, int64_t world, torch::Device device);

  /// Whether losses are sums divided by the items of all processes: else they are means over the
  /// items of the rows. Not known before the first batch.
  const std::optional<bool>& loss_is_divided() const { return loss_is_divided_; }
  void set_loss_is_divided(bool is_divided) { loss_is_divided_ = is_divided; }

  /// This process's rows of `whole`, and what their loss counts from now on. A process without a
  /// row takes the first, which counts nothing.
  Batch take(const Batch& whole);
  /// Whether the batch taken last counts.
  bool counts() const { return counts_; }
  /// The loss of the batch taken last, weighed. May be recorded: the weight is read when it runs.
  torch::Tensor weighed(const torch::Tensor& loss) const;

 private:
  int64_t rank_, world_;
  std::optional<bool> loss_is_divided_;
  bool counts_ = true;
  torch::Tensor weight_;
};

}  // namespace gradus
