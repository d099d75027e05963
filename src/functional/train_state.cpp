#include <gradus/functional/train_state.h>

#include <ATen/ops/zeros.h>
#include <gradus/core/error.h>
#include <gradus/functional/pmean.h>

namespace gradus::functional {

TrainState TrainState::create(ModelFunction apply_fn, GradientTransformation tx, LossFn loss_fn,
                              Key key) {
  if (!apply_fn || !tx)
    throw Error("G-FN-2", ErrorKind::usage,
                std::string("a state cannot be created without ") +
                    (apply_fn ? "a gradient transformation" : "a model"),
                "Give gradus::wrap(module, function) and, say, functional::adamw(1e-3).");
  TrainState state{.key = key,
                   .running_loss = at::zeros({}, at::kFloat),
                   .apply_fn = std::move(apply_fn),
                   .loss_fn = std::move(loss_fn),
                   .tx = std::move(tx)};
  state.params = state.apply_fn.params();
  state.opt_state = state.tx.init(state.params);
  return state;
}

TrainState TrainState::apply_gradients(const Params& grads) const {
  const torch::NoGradGuard no_grad;
  if (!grads.same_names(params))
    throw Error(
        "G-FN-3", ErrorKind::training, "the gradients are not those of the state's parameters",
        "Give what value_and_grad returned for this state, one gradient for every parameter.");
  auto update = tx.update(grads, opt_state, params);
  auto next = *this;
  next.step = step + 1;
  next.params = apply_updates(params, update.updates);
  next.opt_state = std::move(update.state);
  return next;
}

ValueAndGrad value_and_grad(const TrainState& state, Key key, const Batch& batch) {
  return value_and_grad(state, key, batch, state.loss_fn);
}

ValueAndGrad value_and_grad(const TrainState& state, Key key, const Batch& batch,
                            const LossFn& loss_fn) {
  auto own =
      state.apply_fn.value_and_grad(state.params, batch, loss_fn, {.train = true, .key = key});
  return {pmean(own.value), pmean(own.grads)};
}

torch::Tensor loss(const TrainState& state, const Batch& batch) {
  const torch::NoGradGuard no_grad;
  const auto prediction = state.apply_fn(state.params, batch);
  return pmean(state.loss_fn ? state.loss_fn(prediction, batch) : prediction);
}

StepResult train_step(const TrainState& state, Key key, const Batch& batch) {
  const auto [loss, grads] = value_and_grad(state, key, batch);
  return {.state = state.apply_gradients(grads), .metrics = {{"loss", loss}}, .key = key.split()};
}

TensorMetrics val_step(const TrainState& state, const Batch& batch) {
  return {{"loss", loss(state, batch)}};
}

}  // namespace gradus::functional
