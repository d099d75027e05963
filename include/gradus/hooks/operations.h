#pragma once

#include <gradus/hooks/any_batch.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gradus::hooks {

class Hook;

namespace detail {
/// Keeps the names of the hooks that have changed an operation so far.
class OperationOwners {
 public:
  /// `name`: of the operation, for messages.
  explicit OperationOwners(std::string name) : name_(std::move(name)) {}

 protected:
  /// Notes that the hook wraps the operation. Any number of hooks may do so, each around the one
  /// before.
  void add(const Hook& by);
  /// Notes that the hook replaces the operation. Throws `Error` G-HOOK-5 when another hook has
  /// already wrapped or replaced it, because that change would be lost.
  void replace(const Hook& by);

 private:
  std::string name_;
  std::vector<std::string> owners_;
};
}  // namespace detail

template <class Signature>
class Operation;

/// A part of the loop that hooks may change, usually in `before_fit`. `R(A...)` is what it takes
/// and returns.
///
/// A hook either wraps what is there or replaces it. All changes are undone when the run ends.
template <class R, class... A>
class Operation<R(A...)> : private detail::OperationOwners {
 public:
  /// What the operation does.
  using Function = std::function<R(A...)>;
  /// The trainer's own function under a name for messages.
  Operation(std::string name, Function function)
      : OperationOwners(std::move(name)), function_(std::move(function)) {}

  /// From now on `wrapper(previous, arguments...)` is called. It decides whether and when to call
  /// `previous`, which is what was there before.
  template <class F>
  void wrap(const Hook& by, F wrapper) {
    add(by);
    function_ = [previous = std::move(function_),
                 wrapper = std::move(wrapper)](A... arguments) mutable -> R {
      return wrapper(previous, std::forward<A>(arguments)...);
    };
  }

  /// From now on `function` is called in place of the trainer's own. The hook that replaces must
  /// have a lower `ord` than all that wrap; otherwise `Error` G-HOOK-5 is thrown.
  void replace(const Hook& by, Function function) {
    OperationOwners::replace(by);
    function_ = std::move(function);
  }

  /// Does it, with all changes.
  R operator()(A... arguments) const { return function_(std::forward<A>(arguments)...); }

 private:
  Function function_;
};

/// The parts of the loop that hooks may change, as `Trainer::operations()` gives them. Without a
/// change they call the user's steps and the trainer's virtual functions.
struct Operations {
  Operation<Result(const AnyBatch&)> train_step;  ///< the user's training step
  Operation<Result(const AnyBatch&)> eval_step;   ///< the user's validation step
  Operation<void()> backward;                     ///< `Trainer::do_backward`
  Operation<bool()> opt_step;   ///< `Trainer::do_opt_step`: whether the optimizer really stepped
  Operation<void()> zero_grad;  ///< `Trainer::do_zero_grad`
};

}  // namespace gradus::hooks
