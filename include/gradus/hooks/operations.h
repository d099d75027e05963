#pragma once

#include <gradus/hooks/any_batch.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gradus::hooks {

class Hook;

namespace detail {
/// Who has changed an operation so far.
class OperationOwners {
 public:
  explicit OperationOwners(std::string name) : name_(std::move(name)) {}

 protected:
  void add(const Hook& by);
  /// Throws `Error` G-HOOK-5 when another hook has already wrapped or replaced the operation: its
  /// part would be lost.
  void replace(const Hook& by);

 private:
  std::string name_;
  std::vector<std::string> owners_;
};
}  // namespace detail

template <class Signature>
class Operation;

/// A part of the loop that hooks may change, usually in `before_fit`. Changes of a run are undone
/// when it ends.
template <class R, class... A>
class Operation<R(A...)> : private detail::OperationOwners {
 public:
  using Function = std::function<R(A...)>;
  Operation(std::string name, Function function)
      : OperationOwners(std::move(name)), function_(std::move(function)) {}

  /// Puts `wrapper(previous, …)` around what is there.
  template <class F>
  void wrap(const Hook& by, F wrapper) {
    add(by);
    function_ = [previous = std::move(function_),
                 wrapper = std::move(wrapper)](A... arguments) mutable -> R {
      return wrapper(previous, std::forward<A>(arguments)...);
    };
  }

  /// Takes the place of the trainer's own function. The hook must run before all that wrap it (a
  /// lower `ord`).
  void replace(const Hook& by, Function function) {
    OperationOwners::replace(by);
    function_ = std::move(function);
  }

  R operator()(A... arguments) const { return function_(std::forward<A>(arguments)...); }

 private:
  Function function_;
};

/// The parts of the loop that hooks may change. Innermost are the trainer's own virtual functions
/// and the user's steps.
struct Operations {
  Operation<Result(const AnyBatch&)> train_step;
  Operation<Result(const AnyBatch&)> eval_step;
  Operation<void()> backward;
  Operation<bool()> opt_step;  ///< whether the optimizer really stepped
  Operation<void()> zero_grad;
};

}  // namespace gradus::hooks
