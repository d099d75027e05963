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

/// The points of a run where hooks are called. `after_pred` and `after_loss` are for code of the
/// user's: a step is one callback, so the loop itself never reaches them.
enum class Point {
  before_fit,
  before_epoch,
  before_step,
  after_pred,
  after_loss,
  after_backward,
  after_step,
  before_valid,
  after_epoch,
  after_fit,
  after_cancel
};
constexpr size_t kPointCount = 11;
using PointSet = std::bitset<kPointCount>;
/// "before_fit" …
std::string_view point_name(Point point);

/// Values that hooks share, by name.
using State = std::map<std::string, std::any>;

namespace detail {
/// The unqualified name of a type.
std::string type_name(const std::type_info& type);
/// Whole numbers as int64_t, fractions as double, literals as std::string; anything else as it is.
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
std::optional<double> number_of(const std::any& value);
[[noreturn]] void wrong_type(const std::string& key, const std::type_info& expected,
                             const std::type_info& received);
const std::any* find_value(const Trainer& trainer, const std::string& key);
void put_value(Trainer& trainer, const std::string& key, std::any value);
}  // namespace detail

/// A value of `State` as a `T`; numbers convert. Throws `Error` G-HOOK-4 when it is something else.
template <class T>
T value_as(const std::any& value, const std::string& key) {
  if (const auto* exact = std::any_cast<T>(&value)) return *exact;
  if constexpr (std::is_arithmetic_v<T>)
    if (const auto number = detail::number_of(value)) return T(*number);
  detail::wrong_type(key, typeid(T), value.type());
}

/// Something that happens around the steps. Derive, set `ord`, override the points you need.
///
/// Hooks run in ascending `ord`, equal ones in the order they were given. A hook that throws ends
/// the run.
class Hook {
 public:
  int64_t ord = 0;

  virtual ~Hook() = default;
  /// Names it in tables and in `State`; the unqualified type name by default.
  virtual std::string name() const { return detail::type_name(typeid(*this)); }

  virtual void before_fit(Trainer&) {}
  /// Before the training pass of an epoch.
  virtual void before_epoch(Trainer&) {}
  /// A batch is there, not yet on the device.
  virtual void before_step(Trainer&) {}
  virtual void after_pred(Trainer&) {}
  virtual void after_loss(Trainer&) {}
  virtual void after_backward(Trainer&) {}
  /// After the optimizer step and the counters, of training and validation batches.
  virtual void after_step(Trainer&) {}
  /// Between the training and the validation pass of an epoch.
  virtual void before_valid(Trainer&) {}
  virtual void after_epoch(Trainer&) {}
  virtual void after_fit(Trainer&) {}
  /// After an interrupt; the run ends when all hooks were called.
  virtual void after_cancel(Trainer&) {}

  /// Calls the function of `point`.
  virtual void run(Point point, Trainer& trainer);
  /// The points in use, where the type does not tell.
  virtual std::optional<PointSet> points() const { return std::nullopt; }

 protected:
  /// Shares a value under `name().key`.
  template <class T>
  void store(Trainer& trainer, std::string_view key, T value) const {
    detail::put_value(trainer, name() + "." + std::string(key),
                      detail::plain_value(std::move(value)));
  }
  /// A value that hook `Owner` stored, or `otherwise`.
  template <class Owner, class T>
  T get(const Trainer& trainer, std::string_view key, T otherwise) const {
    return get(trainer, detail::type_name(typeid(Owner)), key, std::move(otherwise));
  }
  template <class T>
  T get(const Trainer& trainer, std::string_view owner, std::string_view key, T otherwise) const {
    const auto full = std::string(owner) + "." + std::string(key);
    const auto* value = detail::find_value(trainer, full);
    return value == nullptr ? otherwise : value_as<T>(*value, full);
  }
};

/// A hook that runs in the main process only.
class MainProcessHook : public Hook {};

/// A hook made of functions: `LambdaHook(Point::after_epoch, f)` or `LambdaHook(Point::before_fit,
/// f, Point::after_fit, g)`.
class LambdaHook : public Hook {
 public:
  using Function = std::function<void(Trainer&)>;

  explicit LambdaHook(std::vector<std::pair<Point, Function>> functions) {
    for (auto& [point, function] : functions) on(point, std::move(function));
  }
  template <class F, class... More>
    requires std::is_invocable_v<F&, Trainer&>
  LambdaHook(Point point, F function, More... more) {
    add(point, std::move(function), std::move(more)...);
  }

  /// Adds a function, in place of the one before at this point.
  LambdaHook& on(Point point, Function function) {
    functions_[size_t(point)] = std::move(function);
    return *this;
  }

  void run(Point point, Trainer& trainer) override {
    if (const auto& function = functions_[size_t(point)]) function(trainer);
  }
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
/// The points whose function `T` or a base between it and `Hook` overrides. All of them where `T`
/// is `Hook` itself and so does not tell.
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

/// A hook as a trainer holds it: shared, and with the points it implements, read off the type it is
/// handed over by.
class HookHandle {
 public:
  template <std::derived_from<Hook> T>
  HookHandle(std::shared_ptr<T> hook)
      : HookHandle(std::shared_ptr<Hook>(std::move(hook)), detail::overridden_points<T>()) {}

  Hook& operator*() const { return *hook_; }
  Hook* operator->() const { return hook_.get(); }
  Hook* get() const { return hook_.get(); }
  bool implements(Point point) const {
    return hook_->points().value_or(points_).test(size_t(point));
  }
  bool main_process_only() const { return main_process_only_; }

 private:
  /// Throws `Error` G-HOOK-1 for a null pointer.
  HookHandle(std::shared_ptr<Hook> hook, PointSet points);

  std::shared_ptr<Hook> hook_;
  PointSet points_;
  bool main_process_only_;
};

}  // namespace gradus::hooks
