#pragma once

#include <gradus/distributed/bucket_options.h>
#include <gradus/distributed/process_group.h>
#include <gradus/engine/strategy.h>

#include <memory>

namespace gradus {

class GradientBuckets;

/// How `DataParallel` keeps the processes equal.
struct DataParallelOptions {
  BucketOptions buckets = {};  ///< How gradients are packed for the exchange.
  /// `ddp_broadcast_buffers`: before each window every process takes over the buffers of process 0,
  /// for example the running means of batch normalization.
  bool broadcast_buffers = true;
};

/// Every process has the whole model and a share of each batch; gradients become their mean.
///
/// As PyTorch's DistributedDataParallel: `prepare` gives all processes the weights and buffers of
/// process 0, and compares names and shapes first. The mean is made while the backward pass still
/// runs (see `GradientBuckets`).
class DataParallel : public Strategy {
 public:
  /// Shares `group`.
  explicit DataParallel(std::shared_ptr<ProcessGroup> group, DataParallelOptions options = {});
  ~DataParallel() override;

  /// The number of processes.
  int64_t world_size() const override { return group_->size(); }
  /// Which of them this is.
  int64_t rank() const override { return group_->rank(); }
  /// Throws `Error` G-DIST-5 when the processes have different parameters, and says which.
  void prepare(torch::nn::Module& model) override;
  /// Takes over the buffers of process 0. Before the first window of a run it makes the buckets,
  /// for gradients of the type that the parameters have by then.
  void begin_window() override;
  /// Forgets what a backward pass that failed has sent.
  void begin_micro_batch() override;
  /// Moves the gradients into their buckets.
  void end_micro_batch() override;
  /// Takes the hooks off the parameters.
  void release() override;
  /// Waits until the gradients are the mean of all processes.
  void sync_gradients(std::span<const torch::Tensor> parameters) override;
  /// Holds back the sending of gradients.
  std::unique_ptr<NoSync> no_sync() override;
  /// NCCL's exchanges can be recorded; those by way of the host cannot.
  bool is_recordable() const override { return group_->has_nccl(); }
  /// The sum or mean over all processes.
  torch::Tensor reduce(const torch::Tensor& value, Reduction how) override;
  /// The rows of all processes, by rank.
  torch::Tensor gather(const torch::Tensor& rows) override;

 protected:
  /// The processes.
  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  /// The model of the run under way; null outside a run.
  torch::nn::Module* model() const { return model_; }
  /// Takes over the buffers of process 0, unless the options say otherwise.
  void share_buffers();

 private:
  void check_same_model(const torch::nn::Module& model);

  std::shared_ptr<ProcessGroup> group_;
  DataParallelOptions options_;
  torch::nn::Module* model_ = nullptr;
  std::unique_ptr<GradientBuckets> buckets_;  ///< Null before the first window of a run.
  std::vector<torch::Tensor> buffers_;
};

}  // namespace gradus
