#pragma once

#include <gradus/core/state_tree.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace gradus {

struct DataLoaderOptions;
class Optimizer;

/// What a process holds of a tensor that lies in parts in several processes: the values from
/// `begin` on, in the order of its memory.
struct TensorPart {
  int64_t begin = 0;     ///< The first of them.
  torch::Tensor values;  ///< A vector.
};

/// How the values of several processes become one.
enum class Reduction { sum, mean };

/// What the processes of a run do together: one of these stands between the step and the others.
///
/// `StepEngine` calls `prepare` and `attach` once, `no_sync` around every micro-batch but the last
/// of a window, and `sync_gradients` after the last one, before it measures and clips. `Evaluator`
/// calls `gather`. The base class is the strategy of a single process: it does nothing, and every
/// override may rely on that.
/// Thread-safety: none. Every process calls the same functions in the same order.
class Strategy {
 public:
  Strategy() = default;
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// The number of processes that train together.
  virtual int64_t world_size() const { return 1; }
  /// Which of them this is, from 0.
  virtual int64_t rank() const { return 0; }

  /// Called before the first step of a run: gives all processes the same weights, and hooks
  /// whatever the strategy needs into `model`.
  virtual void prepare(torch::nn::Module& /*model*/) {}

  /// Called after `prepare`: the optimizer may train parts of the parameters from then on. It must
  /// stay until `release`.
  virtual void attach(Optimizer& /*optimizer*/) {}

  /// Called before the first micro-batch of every window.
  virtual void begin_window() {}
  /// Called before the forward pass of every micro-batch; once more when it failed and is tried
  /// again.
  virtual void begin_micro_batch() {}
  /// Called after every micro-batch but the last of a window.
  virtual void end_micro_batch() {}
  /// Called after the optimizer's step.
  virtual void end_step() {}
  /// Called when the gradients are dropped.
  virtual void drop_gradients() {}
  /// Called at the end of a run: takes out of the model what `prepare` and `begin_window` hooked
  /// in.
  virtual void release() {}

  /// Makes the gradients of `parameters` those of the whole batch. Returns when they may be read
  /// by work that is launched next. A parameter without a gradient has none in any process, or
  /// the strategy fills it in.
  virtual void sync_gradients(std::span<const torch::Tensor> /*parameters*/) {}

  /// A scope in which backward passes only add to this process's own gradients.
  struct NoSync {
    virtual ~NoSync() = default;
  };
  /// Opens such a scope; null where nothing is to be held back.
  virtual std::unique_ptr<NoSync> no_sync() { return nullptr; }

  /// Whether every process trains only its parts of the parameters.
  virtual bool is_sharded() const { return false; }
  /// Whether the model computes in bfloat16 while the parts are trained in float32.
  virtual bool holds_masters() const { return false; }
  /// The part of `parameter` that this process trains, which has its gradient after
  /// `sync_gradients`: the parameter itself, unless it is sharded.
  virtual torch::Tensor part_of(const torch::Tensor& parameter) const { return parameter; }
  /// Makes `value`, computed from the parts of this process, the sum over all parts.
  virtual void sum_parts(torch::Tensor& /*value*/) {}
  /// What this process holds of a tensor of the model, as it is trained; nothing when it has the
  /// whole, as all others do.
  virtual std::optional<TensorPart> held_part(const torch::Tensor& /*tensor*/) const {
    return std::nullopt;
  }
  /// The same of the optimizer's parameter number `number`, without its values: begin and length.
  virtual std::optional<std::pair<int64_t, int64_t>> held_range(int64_t /*number*/) const {
    return std::nullopt;
  }
  /// The parameters that the optimizer was made with, in the order of their numbers; none unless
  /// they are sharded.
  virtual std::vector<torch::Tensor> numbered_parameters() const { return {}; }
  /// Whether the model's parameters always hold, whole, what is trained.
  virtual bool weights_stay_whole() const { return true; }
  /// The parts of this process of an optimizer's state that is whole.
  virtual StateTree localize(StateTree state) const { return state; }

  /// What is done with the weights while they are whole: `computed` shows those that the model
  /// computes with, the others those that are trained.
  enum class Use { computed, read, written };
  /// A scope in which every process has all weights of the model. All processes open and close it
  /// together.
  struct Whole {
    virtual ~Whole() = default;
  };
  /// Opens such a scope; null where the weights are whole anyway. With `Use::written`, what all
  /// processes have written to the weights is trained from its end on.
  virtual std::unique_ptr<Whole> whole(Use /*use*/) { return nullptr; }

  /// Whether `sync_gradients` may be part of a step that is recorded as a CUDA graph.
  virtual bool is_recordable() const { return true; }

  /// The value over all processes; the same in each of them.
  virtual torch::Tensor reduce(const torch::Tensor& value, Reduction /*how*/) { return value; }
  /// The rows of all processes, in the order of their ranks.
  virtual torch::Tensor gather(const torch::Tensor& rows) { return rows; }

  /// Lets a loader give this process its share of the data.
  virtual void shard(DataLoaderOptions& /*options*/) const {}

  /// The whole of a state that the processes hold in parts: what a checkpoint keeps.
  virtual StateTree consolidate(StateTree state) { return state; }
};

}  // namespace gradus
