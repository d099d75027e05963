#pragma once

#include <gradus/engine/data_parallel.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "distributed/flat_parameters.h"

namespace gradus {

class GatherOnUse;
class GradientShards;
struct ParameterUnit;

/// How `Sharded` cuts a model.
struct ShardedOptions {
  /// What every process keeps only its share of: 1: the optimizer's state; 2: gradients, too;
  /// 3: parameters, too.
  int stage = 3;
  /// The model computes in bfloat16; the shares are trained in float32.
  bool master_weights = false;
  /// Which modules are gathered as one: the elements of the outermost module lists; those with at
  /// least `min_num_params` parameters; or the model as a whole.
  enum class Wrap { blocks, by_size, none };
  Wrap wrap = Wrap::blocks;
  int64_t min_num_params = 0;
  bool broadcast_buffers = true;  ///< As in `DataParallelOptions`.
};

/// ZeRO: every process computes with the whole model on its share of each batch, but keeps only its
/// share of optimizer state, gradients and parameters, as the stage says.
///
/// The parameters of a block lie one after the other in one buffer, and each process has an equal
/// share of it. Backward passes send gradients to the processes whose share they belong to. The
/// optimizer trains the parts of this process; it must treat every element alone. With stage 3 the
/// blocks are gathered as operations use them, and dropped after (see `GatherOnUse`); else they are
/// gathered after every step.
class Sharded : public DataParallel {
 public:
  /// Shares `group`.
  Sharded(std::shared_ptr<ProcessGroup> group, ShardedOptions options);
  ~Sharded() override;

  void prepare(torch::nn::Module& model) override;
  /// Throws `Error` G-DIST-7 for an optimizer that cannot train parts.
  void attach(Optimizer& optimizer) override;
  void begin_window() override;
  void begin_micro_batch() override {}
  void end_micro_batch() override;
  void end_step() override;
  void drop_gradients() override;
  /// Gives the model its weights back, whole. Where a process is lost they are incomplete.
  void release() override;
  /// Throws `Error` G-DIST-8 when the processes have used blocks in different orders.
  void sync_gradients(std::span<const torch::Tensor> parameters) override;
  std::unique_ptr<NoSync> no_sync() override;

  bool is_sharded() const override { return true; }
  /// Blocks are gathered and dropped by the host.
  bool is_recordable() const override { return false; }
  bool holds_masters() const override { return options_.master_weights; }
  torch::Tensor part_of(const torch::Tensor& parameter) const override;
  void sum_parts(torch::Tensor& value) override;
  std::optional<TensorPart> held_part(const torch::Tensor& tensor) const override;
  std::optional<std::pair<int64_t, int64_t>> held_range(int64_t number) const override;
  std::vector<torch::Tensor> numbered_parameters() const override;
  bool weights_stay_whole() const override {
    return options_.stage < 3 && !options_.master_weights;
  }
  StateTree localize(StateTree state) const override;
  std::unique_ptr<Whole> whole(Use use) override;

 private:
  struct Opened;
  void make_units(torch::nn::Module& model);
  void gather_wholes();
  template <class F>
  void each_flat(const F& use) const;

  ShardedOptions options_;
  std::shared_ptr<ProcessGroup> gradient_channel_, parameter_channel_;
  std::vector<ParameterUnit> units_;           // the first holds what is in no block
  std::unique_ptr<GradientShards> gradients_;  // null outside a run
  std::unique_ptr<GatherOnUse> gathering_;     // stage 3
  std::unordered_map<const void*, FlatParameters::Part> parts_;           // by parameter
  std::vector<std::pair<torch::Tensor, FlatParameters::Part>> numbered_;  // the optimizer's
  Optimizer* optimizer_ = nullptr;
  int open_ = 0;             // scopes that show the weights
  bool is_written_ = false;  // in one of them
};

}  // namespace gradus
