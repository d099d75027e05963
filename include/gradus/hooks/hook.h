#pragma once

#include <any>
#include <array>
#include <bitset>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

namespace gradus::hooks {

class Trainer;

/// The points of a run at which hooks are called.
enum class Point {
  before_fit,      ///< before the first epoch; here hooks change the operations of the run
  before_epoch,    ///< before the training pass of an epoch
  before_step,     ///< a batch is there, not yet on the device
  after_pred,      ///< never called by the loop; for a step that wants to call it
  after_loss,      ///< never called by the loop; for a step that wants to call it
  after_backward,  ///< the gradients of the batch are there
  after_step,      ///< after optimizer step and counters; in validation after the step
  before_valid,    ///< between the training and the validation pass of an epoch
  after_epoch,     ///< after both passes
  after_fit,       ///< after the last epoch
  after_cancel     ///< after an interrupt, in place of `after_fit`
};
/// How many points there are.
constexpr size_t kPointCount = 11;
/// Some of the points.
using PointSet = std::bitset<kPointCount>;
/// The name as it stands in the code, for example "before_fit".
std::string_view point_name(Point point);

/// Values that hooks share, by name. `Hook::store` writes and `Hook::get` reads them.
using State = std::map<std::string, std::any>;

namespace detail {
/// The unqualified name of a type.
std::string type_name(const std::type_info& type);
/// Integers as int64_t, floating-point numbers as double, text as std::string; anything else as it
/// is.
template <class T>
std::any plain_value(T value) {
  if constexpr (std::same_as<T, bool>)
    return value;
  else if constexpr (std::integral<T>)
    return int64_t(value);
  else if constexpr (std::floating_point<T>)
    return double(value);
  else if constexpr (std::convertible_to<T, std::string_view>)
    return std::string(std::string_view(value));
  else
    return std::any(std::move(value));
}
/// The value as a number, when it is one.
std::optional<double> number_of(const std::any& value);
/// Throws `Error` G-HOOK-4.
[[noreturn]] void wrong_type(const std::string& key, const std::type_info& expected,
                             const std::type_info& received);
/// The shared value `key`; null when there is none.
const std::any* find_value(const Trainer& trainer, const std::string& key);
/// Sets the shared value `key`.
void put_value(Trainer& trainer, const std::string& key, std::any value);
}  // namespace detail

/// A value of `State` as a `T`. Numbers convert into each other. Throws `Error` G-HOOK-4 when the
/// value has another type.
template <class T>
T value_as(const std::any& value, const std::string& key) {
  if (const auto* exact = std::any_cast<T>(&value)) return *exact;
  if constexpr (std::is_arithmetic_v<T>)
    if (const auto number = detail::number_of(value)) return T(*number);
  detail::wrong_type(key, typeid(T), value.type());
}

/// A part of a training step that one hook takes care of.
enum class StepJob {
  precision,    ///< autocast and loss scaling
  clipping,     ///< the limit on the norm of the gradients
  accumulation  ///< several batches per optimizer step
};

/// Something that happens around the steps. Derive from it, set `ord`, and override the points you
/// need.
///
/// Hooks run in ascending `ord`; those with the same `ord` run in the order in which they were
/// given. A hook that throws ends the run.
class Hook {
 public:
  int64_t ord = 0;  ///< the place among the hooks: lower ones run first

  virtual ~Hook() = default;
  /// The name in tables, in messages and in `State`; by default the name of the type without its
  /// namespaces.
  virtual std::string name() const { return detail::type_name(typeid(*this)); }

  virtual void before_fit(Trainer&) {}      ///< see `Point::before_fit`
  virtual void before_epoch(Trainer&) {}    ///< see `Point::before_epoch`
  virtual void before_step(Trainer&) {}     ///< see `Point::before_step`
  virtual void after_pred(Trainer&) {}      ///< see `Point::after_pred`
  virtual void after_loss(Trainer&) {}      ///< see `Point::after_loss`
  virtual void after_backward(Trainer&) {}  ///< see `Point::after_backward`
  virtual void after_step(Trainer&) {}      ///< see `Point::after_step`
  virtual void before_valid(Trainer&) {}    ///< see `Point::before_valid`
  virtual void after_epoch(Trainer&) {}     ///< see `Point::after_epoch`
  virtual void after_fit(Trainer&) {}       ///< see `Point::after_fit`
  virtual void after_cancel(Trainer&) {}    ///< see `Point::after_cancel`

  /// Calls the function of `point`.
  virtual void run(Point point, Trainer& trainer);
  /// The points it uses. Override it where the overridden functions do not tell, as in
  /// `LambdaHook`.
  virtual std::optional<PointSet> points() const { return std::nullopt; }
  /// The parts of a step that this hook takes care of. `AccelerateHook` takes care of all of them
  /// and refuses to run beside a hook that has a job too.
  virtual std::vector<StepJob> step_jobs() const { return {}; }

 protected:
  /// Shares a value with other hooks under the name `name().key`.
  template <class T>
  void store(Trainer& trainer, std::string_view key, T value) const {
    detail::put_value(trainer, name() + "." + std::string(key),
                      detail::plain_value(std::move(value)));
  }
  /// A value that a hook of type `Owner` has stored; `otherwise` when there is none.
  template <class Owner, class T>
  T get(const Trainer& trainer, std::string_view key, T otherwise) const {
    return get(trainer, detail::type_name(typeid(Owner)), key, std::move(otherwise));
  }
  /// The same, with the name of the hook that stored it.
  template <class T>
  T get(const Trainer& trainer, std::string_view owner, std::string_view key, T otherwise) const {
    const auto full = std::string(owner) + "." + std::string(key);
    const auto* value = detail::find_value(trainer, full);
    return value == nullptr ? otherwise : value_as<T>(*value, full);
  }
};

/// A hook that runs in the main process only: for logs, files and progress bars. It derives from
/// `Hook` and adds nothing but that.
class MainProcessHook : public Hook {};

/// A hook made of functions: `LambdaHook(Point::after_epoch, f)` or
/// `LambdaHook(Point::before_fit, f, Point::after_fit, g)`. Its name is "LambdaHook"; derive from
/// `Hook` to have one of your own.
class LambdaHook : public Hook {
 public:
  /// What is called at a point.
  using Function = std::function<void(Trainer&)>;

  /// From a list of points and functions.
  explicit LambdaHook(std::vector<std::pair<Point, Function>> functions) {
    for (auto& [point, function] : functions) on(point, std::move(function));
  }
  /// From points and functions in turn.
  template <class F, class... More>
    requires std::is_invocable_v<F&, Trainer&>
  LambdaHook(Point point, F function, More... more) {
    add(point, std::move(function), std::move(more)...);
  }

  /// Sets the function of a point. It replaces the one that was there.
  LambdaHook& on(Point point, Function function) {
    functions_[size_t(point)] = std::move(function);
    return *this;
  }

  /// Calls the function of `point`, when there is one.
  void run(Point point, Trainer& trainer) override {
    if (const auto& function = functions_[size_t(point)]) function(trainer);
  }
  /// The points with a function.
  std::optional<PointSet> points() const override;

 private:
  void add() {}
  template <class F, class... More>
  void add(Point point, F function, More... more) {
    on(point, std::move(function));
    add(std::move(more)...);
  }

  std::array<Function, kPointCount> functions_;
};

namespace detail {
/// The points whose function `T` overrides, or a base class between `T` and `Hook`. All points when
/// `T` is `Hook` itself, which does not tell.
template <class T>
PointSet overridden_points() {
  PointSet set;
  if constexpr (std::same_as<T, Hook> || std::same_as<T, MainProcessHook>) return set.set();
#define GRADUS_POINT(name)                                      \
  set.set(                                                      \
      size_t(Point::name), !requires {                          \
        { &T::name } -> std::same_as<void (Hook::*)(Trainer&)>; \
      })
  GRADUS_POINT(before_fit);
  GRADUS_POINT(before_epoch);
  GRADUS_POINT(before_step);
  GRADUS_POINT(after_pred);
  GRADUS_POINT(after_loss);
  GRADUS_POINT(after_backward);
  GRADUS_POINT(after_step);
  GRADUS_POINT(before_valid);
  GRADUS_POINT(after_epoch);
  GRADUS_POINT(after_fit);
  GRADUS_POINT(after_cancel);
#undef GRADUS_POINT
  return set;
}
}  // namespace detail

/// A hook as a trainer holds it: a shared pointer, and the points that the hook implements. The
/// compiler reads these off the type of the pointer the hook is handed over with.
class HookHandle {
 public:
  /// Throws `Error` G-HOOK-1 for a null pointer.
  template <std::derived_from<Hook> T>
  HookHandle(std::shared_ptr<T> hook)
      : HookHandle(std::shared_ptr<Hook>(std::move(hook)), detail::overridden_points<T>()) {}

  /// The hook, which is never null.
  Hook& operator*() const { return *hook_; }
  /// Its members.
  Hook* operator->() const { return hook_.get(); }
  /// A pointer to it.
  Hook* get() const { return hook_.get(); }
  /// Whether the hook does something at `point`.
  bool implements(Point point) const {
    return hook_->points().value_or(points_).test(size_t(point));
  }
  /// Whether it is a `MainProcessHook`.
  bool main_process_only() const { return main_process_only_; }

 private:
  HookHandle(std::shared_ptr<Hook> hook, PointSet points);

  std::shared_ptr<Hook> hook_;
  PointSet points_;
  bool main_process_only_;
};

}  // namespace gradus::hooks
