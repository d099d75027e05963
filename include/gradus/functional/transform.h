#pragma once

#include <gradus/functional/params.h>
#include <gradus/functional/schedule.h>

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace gradus::functional {

/// What a gradient transformation remembers from step to step: single tensors, sets of tensors like
/// the parameters, and inner states, all by name.
///
/// It is a value, as `Params` is. In files it has the layout of optax's state of the same name.
struct OptState {
  struct Field;
  std::vector<Field> fields;  ///< in the order of optax's state

  /// The tensor `name`. Throws `Error` G-FN-3 when there is none.
  const torch::Tensor& tensor(std::string_view name) const;
  /// The set of tensors `name`. Throws `Error` G-FN-3 when there is none.
  const Params& params(std::string_view name) const;
  /// The inner state `name`. Throws `Error` G-FN-3 when there is none.
  const OptState& inner(std::string_view name) const;
};
/// A named part of an `OptState`.
struct OptState::Field {
  std::string name;                                     ///< as in optax
  std::variant<torch::Tensor, Params, OptState> value;  ///< one of the three kinds
};

/// The state as nested dictionaries, as optax writes it.
FlaxTree to_flax(const OptState& state);
/// The reverse, for a state with the same parts as `like`. Throws G-FN-4 when parts are missing,
/// unexpected or of another shape; `what` names the tree in the message.
OptState from_flax(const FlaxTree& tree, const OptState& like, const std::string& what);

/// What a gradient transformation returns.
struct Update {
  Params updates;  ///< the transformed gradients
  OptState state;  ///< for the next step
};

/// Two pure functions that together are an optimizer, or a part of one, as in optax.
struct GradientTransformation {
  /// The state before the first step.
  std::function<OptState(const Params& params)> init = {};
  /// Transforms the gradients, or what the transformation before made of them, and returns the next
  /// state.
  std::function<Update(const Params& updates, const OptState& state, const Params& params)> update =
      {};

  /// Whether both functions are there.
  explicit operator bool() const { return init != nullptr && update != nullptr; }
};

/// Applies one after the other. Their states are named "0", "1", …
GradientTransformation chain(std::vector<GradientTransformation> parts);
/// The same with the parts as arguments.
template <std::same_as<GradientTransformation>... Parts>
GradientTransformation chain(GradientTransformation first, Parts... more) {
  return chain(std::vector<GradientTransformation>{std::move(first), std::move(more)...});
}

/// Scales all gradients down so that their total norm is at most `max_norm`. The host does not wait
/// for the device.
GradientTransformation clip_by_global_norm(double max_norm);
/// Multiplies by `factor`.
GradientTransformation scale(double factor);
/// Multiplies by `schedule(step)`.
GradientTransformation scale_by_schedule(Schedule schedule);
/// Multiplies by `-schedule(step)`: the last part of an optimizer.
GradientTransformation scale_by_learning_rate(Schedule learning_rate);

/// Settings of Adam, with optax's names and defaults.
struct AdamOptions {
  double b1 = 0.9;      ///< decay of the first moment
  double b2 = 0.999;    ///< decay of the second moment
  double eps = 1e-8;    ///< added to the root in the denominator
  double eps_root = 0;  ///< added inside the root
};
/// `optax.scale_by_adam`: divides the mean of the gradients by the root of the mean of their
/// squares.
GradientTransformation scale_by_adam(AdamOptions options = {});

/// `optax.trace`: momentum. The sum of all gradients, each multiplied by `decay` per step of age.
GradientTransformation trace(double decay);

/// Says which parameters something applies to.
using Mask = std::function<bool(const std::string& name, const torch::Tensor& param)>;
/// All but biases and the scales of norm layers: "….bias", "….LayerNorm.weight",
/// "….ln_1.weight", "….norm.scale".
bool no_bias_no_norm(const std::string& name, const torch::Tensor& param);

/// Adds `weight_decay` times the parameter, for the parameters that `mask` selects; without a mask
/// for all.
GradientTransformation add_decayed_weights(double weight_decay, Mask mask = {});

/// Settings of `adamw`, with optax's names and defaults.
struct AdamWOptions {
  double b1 = 0.9;             ///< as in `AdamOptions`
  double b2 = 0.999;           ///< as in `AdamOptions`
  double eps = 1e-8;           ///< as in `AdamOptions`
  double eps_root = 0;         ///< as in `AdamOptions`
  double weight_decay = 1e-4;  ///< times the learning rate
  Mask mask = {};              ///< what decays; unset: all parameters, as in optax
};
/// `optax.adamw`: chain(scale_by_adam, add_decayed_weights, scale_by_learning_rate).
GradientTransformation adamw(Schedule learning_rate, AdamWOptions options = {});
/// `optax.sgd`: gradient descent, with momentum when it is given.
GradientTransformation sgd(Schedule learning_rate, std::optional<double> momentum = std::nullopt);

/// Adds the updates to the parameters. The result has the parameters' dtypes.
Params apply_updates(const Params& params, const Params& updates);

}  // namespace gradus::functional
