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

/// What a gradient transformation remembers from step to step: named tensors, parameter-shaped sets
/// and inner states. A value, as `Params` is. In files it has the layout of optax's state of the
/// same name.
struct OptState {
  struct Field;
  std::vector<Field> fields;

  /// A field of that kind. Throws `Error` G-FN-3 when there is none.
  const torch::Tensor& tensor(std::string_view name) const;
  const Params& params(std::string_view name) const;
  const OptState& inner(std::string_view name) const;
};
struct OptState::Field {
  std::string name;
  std::variant<torch::Tensor, Params, OptState> value;
};

FlaxTree to_flax(const OptState& state);
/// The state of a tree that must be built as `like` is. Throws G-FN-4.
OptState from_flax(const FlaxTree& tree, const OptState& like, const std::string& what);

struct Update {
  Params updates;
  OptState state;
};

/// Two pure functions that together are an optimizer, or a part of one, as in optax.
struct GradientTransformation {
  /// The state before the first step.
  std::function<OptState(const Params& params)> init = {};
  /// What becomes of the gradients (or of what the one before made of them), and the next state.
  std::function<Update(const Params& updates, const OptState& state, const Params& params)> update =
      {};

  explicit operator bool() const { return init != nullptr && update != nullptr; }
};

/// One after the other. Their states are numbered "0", "1", …
GradientTransformation chain(std::vector<GradientTransformation> parts);
template <std::same_as<GradientTransformation>... Parts>
GradientTransformation chain(GradientTransformation first, Parts... more) {
  return chain(std::vector<GradientTransformation>{std::move(first), std::move(more)...});
}

/// Scales all gradients so that their norm together is at most `max_norm`. Without a host-device
/// sync.
GradientTransformation clip_by_global_norm(double max_norm);
GradientTransformation scale(double factor);
/// Times `schedule(step)`.
GradientTransformation scale_by_schedule(Schedule schedule);
/// Times `-schedule(step)`: the last part of an optimizer.
GradientTransformation scale_by_learning_rate(Schedule learning_rate);

struct AdamOptions {
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-8;
  double eps_root = 0;  ///< inside the root
};
GradientTransformation scale_by_adam(AdamOptions options = {});

/// Sums up gradients, the older ones times `decay` for each step: momentum.
GradientTransformation trace(double decay);

/// Which parameters something applies to.
using Mask = std::function<bool(const std::string& name, const torch::Tensor& param)>;
/// All but biases and the scales of norm layers: "….bias", "….LayerNorm.weight",
/// "….ln_1.weight", "….norm.scale".
bool no_bias_no_norm(const std::string& name, const torch::Tensor& param);

/// Adds `weight_decay` times the parameters `mask` lets through (none given: all).
GradientTransformation add_decayed_weights(double weight_decay, Mask mask = {});

struct AdamWOptions {
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-8;
  double eps_root = 0;
  double weight_decay = 1e-4;
  Mask mask = {};  ///< what decays; none given: all parameters, as in optax
};
/// `optax.adamw`: chain(scale_by_adam, add_decayed_weights, scale_by_learning_rate).
GradientTransformation adamw(Schedule learning_rate, AdamWOptions options = {});
/// `optax.sgd`.
GradientTransformation sgd(Schedule learning_rate, std::optional<double> momentum = std::nullopt);

/// Parameters plus updates, in the parameters' dtypes.
Params apply_updates(const Params& params, const Params& updates);

}  // namespace gradus::functional
