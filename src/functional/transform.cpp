#include <gradus/functional/transform.h>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gradus/core/error.h>

#include <cctype>
#include <cmath>

namespace gradus::functional {
namespace {

using Tensors = std::vector<torch::Tensor>;

template <class T>
const T& field(const OptState& state, std::string_view name, const char* kind) {
  for (const auto& field : state.fields)
    if (field.name == name)
      if (const auto* value = std::get_if<T>(&field.value)) return *value;
  throw Error("G-FN-3", ErrorKind::training,
              "the optimizer state has no " + std::string(kind) + " '" + std::string(name) + "'",
              "Use a state that this gradient transformation made (`init` or `update`).");
}

// Counts are kept on the CPU, so that reading one never waits for a device.
torch::Tensor count_of(int64_t value) { return at::scalar_tensor(value, at::kInt); }

// In float32, as JAX does: 1 - 0.999 differs from 0.001 by 5e-5 of it there, which is seen in the
// first steps.
double bias_correction(double decay, int64_t count) {
  return double(1.0f - std::pow(float(decay), float(count)));
}

Params zeros_of(const Params& params) {
  Tensors zeros;
  for (const auto& param : params.values()) zeros.push_back(at::zeros_like(param));
  return params.with(std::move(zeros));
}

/// A transformation that remembers nothing.
GradientTransformation stateless(
    std::function<Params(const Params& updates, const Params& params)> change) {
  return {.init = [](const Params&) { return OptState{}; },
          .update = [change = std::move(change)](
                        const Params& updates, const OptState&,
                        const Params& params) { return Update{change(updates, params), {}}; }};
}

}  // namespace

const torch::Tensor& OptState::tensor(std::string_view name) const {
  return field<torch::Tensor>(*this, name, "tensor");
}
const Params& OptState::params(std::string_view name) const {
  return field<Params>(*this, name, "parameters");
}
const OptState& OptState::inner(std::string_view name) const {
  return field<OptState>(*this, name, "inner state");
}

FlaxTree to_flax(const OptState& state) {
  auto tree = FlaxTree::dict();
  for (const auto& field : state.fields) {
    if (const auto* tensor = std::get_if<torch::Tensor>(&field.value))
      tree.set(field.name, *tensor);
    else if (const auto* params = std::get_if<Params>(&field.value))
      tree.set(field.name, to_flax(*params));
    else
      tree.set(field.name, to_flax(std::get<OptState>(field.value)));
  }
  return tree;
}

OptState from_flax(const FlaxTree& tree, const OptState& like, const std::string& what) {
  const auto wrong = [&](const std::string& problem) {
    throw Error("G-FN-4", ErrorKind::checkpoint, what + " does not fit the optimizer: " + problem,
                "Build the model and the optimizer as they were when this was saved.");
  };
  if (!tree.is_dict()) wrong("it is a " + tree.type_name() + ", expected a dict");
  for (const auto& [key, value] : tree.entries())
    if (std::none_of(like.fields.begin(), like.fields.end(),
                     [&](const auto& field) { return field.name == key; }))
      wrong("it has '" + key + "', which is not expected");
  OptState state;
  for (const auto& field : like.fields) {
    const auto* value = tree.find(field.name);
    const auto name = what + "/" + field.name;
    if (value == nullptr) wrong("it has no '" + field.name + "'");
    if (const auto* tensor = std::get_if<torch::Tensor>(&field.value)) {
      if (!value->is_tensor() || value->tensor().sizes() != tensor->sizes())
        wrong("'" + field.name + "' is not an array of the expected shape");
      state.fields.push_back({field.name, value->tensor().to(tensor->options())});
    } else if (const auto* params = std::get_if<Params>(&field.value)) {
      state.fields.push_back({field.name, from_flax(*value, *params, name)});
    } else {
      state.fields.push_back(
          {field.name, from_flax(*value, std::get<OptState>(field.value), name)});
    }
  }
  return state;
}

GradientTransformation chain(std::vector<GradientTransformation> parts) {
  const auto shared = std::make_shared<const std::vector<GradientTransformation>>(std::move(parts));
  return {.init =
              [shared](const Params& params) {
                OptState state;
                for (size_t i = 0; i < shared->size(); ++i)
                  state.fields.push_back({std::to_string(i), (*shared)[i].init(params)});
                return state;
              },
          .update =
              [shared](const Params& gradients, const OptState& state, const Params& params) {
                Update result{gradients, {}};
                for (size_t i = 0; i < shared->size(); ++i) {
                  auto part =
                      (*shared)[i].update(result.updates, state.inner(std::to_string(i)), params);
                  result.updates = std::move(part.updates);
                  result.state.fields.push_back({std::to_string(i), std::move(part.state)});
                }
                return result;
              }};
}

GradientTransformation clip_by_global_norm(double max_norm) {
  return stateless([max_norm](const Params& updates, const Params&) {
    const auto norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(updates.values())));
    const auto fits = norm < max_norm;
    Tensors clipped;
    for (const auto& update : updates.values())
      clipped.push_back(at::where(fits, update, update / norm.to(update.scalar_type()) * max_norm));
    return updates.with(std::move(clipped));
  });
}

GradientTransformation scale(double factor) {
  return stateless([factor](const Params& updates, const Params&) {
    return updates.with(at::_foreach_mul(updates.values(), factor));
  });
}

GradientTransformation scale_by_schedule(Schedule schedule) {
  return {.init = [](const Params&) { return OptState{{{"count", count_of(0)}}}; },
          .update =
              [schedule = std::move(schedule)](const Params& updates, const OptState& state,
                                               const Params&) {
                const auto count = state.tensor("count").item<int64_t>();
                return Update{updates.with(at::_foreach_mul(updates.values(), schedule(count))),
                              {{{"count", count_of(count + 1)}}}};
              }};
}

GradientTransformation scale_by_learning_rate(Schedule learning_rate) {
  if (learning_rate.fixed()) return scale(-*learning_rate.fixed());
  return scale_by_schedule(Schedule(
      [learning_rate = std::move(learning_rate)](int64_t step) { return -learning_rate(step); }));
}

GradientTransformation scale_by_adam(AdamOptions o) {
  return {.init =
              [](const Params& params) {
                return OptState{
                    {{"count", count_of(0)}, {"mu", zeros_of(params)}, {"nu", zeros_of(params)}}};
              },
          .update =
              [o](const Params& gradients, const OptState& state, const Params&) {
                const auto& g = gradients.values();
                const auto count = state.tensor("count").item<int64_t>() + 1;
                auto mu = at::_foreach_mul(state.params("mu").values(), o.b1);
                at::_foreach_add_(mu, g, 1 - o.b1);
                auto nu = at::_foreach_mul(state.params("nu").values(), o.b2);
                at::_foreach_addcmul_(nu, g, g, 1 - o.b2);
                auto divisor = at::_foreach_div(nu, bias_correction(o.b2, count));
                if (o.eps_root != 0) at::_foreach_add_(divisor, o.eps_root);
                at::_foreach_sqrt_(divisor);
                at::_foreach_add_(divisor, o.eps);
                auto updates = at::_foreach_div(mu, bias_correction(o.b1, count));
                at::_foreach_div_(updates, divisor);
                return Update{gradients.with(std::move(updates)),
                              {{{"count", count_of(count)},
                                {"mu", gradients.with(std::move(mu))},
                                {"nu", gradients.with(std::move(nu))}}}};
              }};
}

GradientTransformation trace(double decay) {
  return {.init = [](const Params& params) { return OptState{{{"trace", zeros_of(params)}}}; },
          .update =
              [decay](const Params& gradients, const OptState& state, const Params&) {
                auto sums = at::_foreach_mul(state.params("trace").values(), decay);
                at::_foreach_add_(sums, gradients.values());
                const auto updates = gradients.with(std::move(sums));
                return Update{updates, {{{"trace", updates}}}};
              }};
}

bool no_bias_no_norm(const std::string& name, const torch::Tensor&) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += char(std::tolower(static_cast<unsigned char>(c)));
  }
  if (parts.back() == "bias") return false;
  if (parts.size() < 2 || (parts.back() != "weight" && parts.back() != "scale")) return true;
  const auto& layer = parts[parts.size() - 2];
  return layer.find("norm") == std::string::npos && layer != "ln" && !layer.starts_with("ln_");
}

GradientTransformation add_decayed_weights(double weight_decay, Mask mask) {
  auto decay = [weight_decay, mask](const Params& updates, const OptState& state,
                                    const Params& params) {
    auto values = updates.values();
    for (size_t i = 0; i < values.size(); ++i)
      if (!mask || mask(params.names()[i], params.values()[i]))
        values[i] = values[i].add(params.values()[i], weight_decay);
    return Update{updates.with(std::move(values)), state};
  };
  // optax wraps the (empty) state when there is a mask.
  const auto state = mask ? OptState{{{"inner_state", OptState{}}}} : OptState{};
  return {.init = [state](const Params&) { return state; }, .update = std::move(decay)};
}

GradientTransformation adamw(Schedule learning_rate, AdamWOptions o) {
  return chain(scale_by_adam({.b1 = o.b1, .b2 = o.b2, .eps = o.eps, .eps_root = o.eps_root}),
               add_decayed_weights(o.weight_decay, std::move(o.mask)),
               scale_by_learning_rate(std::move(learning_rate)));
}

GradientTransformation sgd(Schedule learning_rate, std::optional<double> momentum) {
  auto first = momentum ? trace(*momentum)
                        : stateless([](const Params& updates, const Params&) { return updates; });
  return chain(std::move(first), scale_by_learning_rate(std::move(learning_rate)));
}

Params apply_updates(const Params& params, const Params& updates) {
  Tensors sums = at::_foreach_add(params.values(), updates.values());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i].to(params.values()[i].scalar_type());
  return params.with(std::move(sums));
}

}  // namespace gradus::functional
