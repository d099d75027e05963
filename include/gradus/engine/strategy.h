#pragma once

#include <gradus/core/state_tree.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <span>

namespace gradus {

struct DataLoaderOptions;

/// How the values of several processes become one.
enum class Reduction { sum, mean };

/// What the processes of a run do together: one of these stands between the step and the others.
///
/// `StepEngine` calls `prepare` once, `no_sync` around every micro-batch but the last of a window,
/// and `sync_gradients` after the last one, before it measures and clips. `Evaluator` calls
/// `gather`. The base class is the strategy of a single process: it does nothing, and every
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

  /// Called before the first micro-batch of every window.
  virtual void begin_window() {}
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
