#pragma once

#include <gradus/distributed/process_group.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <unordered_map>
#include <vector>

#include "distributed/flat_parameters.h"

namespace at {
class RecordFunction;
}

namespace gradus {

/// Flat parameters that are gathered and dropped together: those of a block of the model.
struct ParameterUnit {
  std::vector<std::unique_ptr<FlatParameters>> flats;
  bool stays = false;  ///< once gathered, until `GatherOnUse::drop_all`
};

/// Gathers parameters when a torch operation is about to use them, and drops them when the next
/// unit is used. The unit that comes next is gathered meanwhile.
///
/// It sees every operation of the thread that made it, and of the backward passes of that thread,
/// so that a model needs no hooks. All
/// processes must use the units in the same order; `order()` lets them find out that they did not.
/// Operations on views alone gather nothing.
/// Thread-safety: none; for the thread that made it. Only one may live in a thread.
class GatherOnUse {
 public:
  /// Refers to `units`, which stand in the order of a forward pass, and drops them. Shares `group`,
  /// which nobody else may use for exchanges.
  GatherOnUse(std::vector<ParameterUnit>& units, std::shared_ptr<ProcessGroup> group);
  ~GatherOnUse();
  GatherOnUse(const GatherOnUse&) = delete;
  GatherOnUse& operator=(const GatherOnUse&) = delete;

  /// Drops all units: the shards have changed, or memory is needed.
  void drop_all();
  /// Gathers all units, which stay until `drop_all`.
  void gather_all();
  /// What went wrong when parameters were gathered for an operation of this thread; null: nothing.
  /// Torch lets no exception out of its observers: the operation itself then fails for want of
  /// memory to read, with an error that says nothing of the reason.
  static std::exception_ptr take_failure();
  /// Lets go of everything without a word to the others. No operation is looked at any more.
  void forget();
  /// A number that two processes share when they have gathered the same units in the same order
  /// since the last call.
  int64_t take_order();

 private:
  struct Observer;
  struct Place {
    bool is_here = false;
    std::vector<ProcessGroup::Pending> pending;  // not empty: on its way
  };

  bool needs_units(const at::RecordFunction& function);
  void use(const std::vector<size_t>& units);
  void start(size_t unit);
  void finish(size_t unit);
  void drop(size_t unit);
  void prefetch_after(size_t unit);

  std::vector<ParameterUnit>& units_;
  std::shared_ptr<ProcessGroup> group_;
  std::vector<Place> places_;
  std::unordered_map<const void*, size_t> unit_of_;  // by storage
  std::vector<size_t> needed_;                       // of the operation under way
  size_t last_ = 0;                                  // the unit used last
  int64_t order_ = 0;
  uint64_t handle_ = 0;
  bool keeps_all_ = false;
};

}  // namespace gradus
