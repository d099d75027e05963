#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>

namespace gradus {

class Model;
namespace search {
class Trial;
}

/// Makes models: a function without parameters, or one that takes the trial of a search, which is
/// null outside of one.
///
///     .model_init = [] { return std::make_shared<MyModel>(64); }
///     .model_init = [](gradus::search::Trial* trial) {
///       return std::make_shared<MyModel>(trial ? trial->suggest_int("width", 16, 256) : 64);
///     }
///
/// Thread-safety: that of the function.
class ModelInit {
 public:
  /// None.
  ModelInit(std::nullptr_t = nullptr) {}  // NOLINT: meant to convert
  /// A function without parameters.
  template <std::invocable F>
    requires(!std::same_as<F, ModelInit>)
  ModelInit(F make) {  // NOLINT: meant to convert
    if (is_there(make)) make_ = [make = std::move(make)](search::Trial*) { return make(); };
  }
  /// A function of the trial.
  template <std::invocable<search::Trial*> F>
    requires(!std::same_as<F, ModelInit> && !std::invocable<F>)
  ModelInit(F make) {  // NOLINT: meant to convert
    if (is_there(make)) make_ = std::move(make);
  }

  /// Whether there is a function.
  explicit operator bool() const { return bool(make_); }
  /// Makes a model.
  std::shared_ptr<Model> operator()(search::Trial* trial = nullptr) const { return make_(trial); }

 private:
  // Whether there is something to call: a pointer may be null and a std::function empty. A lambda
  // has no operator bool; the pointer that some convert to is never null, of which g++ 14 warns.
  template <class F>
  static bool is_there(const F& make) {
    if constexpr (std::is_pointer_v<F>) return make != nullptr;
    if constexpr (requires { make.operator bool(); }) return make.operator bool();
    return true;
  }

  std::function<std::shared_ptr<Model>(search::Trial*)> make_;  ///< Empty: none.
};

}  // namespace gradus
