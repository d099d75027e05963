#pragma once

#include <gradus/functional/model_function.h>
#include <gradus/functional/transform.h>

#include <functional>
#include <map>
#include <string>

namespace gradus::functional {

/// All that training changes, as a value. A step makes a new state and leaves the old one as it
/// was.
struct TrainState {
  int64_t step = 0;                 ///< steps done
  Params params = {};               ///< the model's parameters
  OptState opt_state = {};          ///< what the optimizer remembers
  Key key = Key();                  ///< for the next step
  torch::Tensor running_loss = {};  ///< sum of the losses of this epoch; kept by `Trainer::train`

  // Functions, the same for all states of a run.
  ModelFunction apply_fn = {};     ///< the model
  LossFn loss_fn = {};             ///< unset: the loss is what the model returns
  GradientTransformation tx = {};  ///< the optimizer

  /// The state before the first step, with the model's current parameters. Throws `Error` G-FN-2
  /// without a model or `tx`.
  static TrainState create(ModelFunction apply_fn, GradientTransformation tx, LossFn loss_fn = {},
                           Key key = Key());

  /// The state after a step with these gradients. Throws `Error` G-FN-3 when their names are not
  /// those of `params`.
  TrainState apply_gradients(const Params& grads) const;
};

/// The loss of a batch and its gradients, in training mode, with random numbers from `key`. With
/// several processes both are the means over all (`pmean`). Throws G-FN-1 when the loss is not a
/// scalar.
ValueAndGrad value_and_grad(const TrainState& state, Key key, const Batch& batch);
/// The same with another loss than the state's.
ValueAndGrad value_and_grad(const TrainState& state, Key key, const Batch& batch,
                            const LossFn& loss_fn);
/// The loss of a batch in evaluation mode; the mean over all processes.
torch::Tensor loss(const TrainState& state, const Batch& batch);

/// Metrics of a step by name, still on the device.
using TensorMetrics = std::map<std::string, torch::Tensor>;

/// What a training step returns.
struct StepResult {
  TrainState state;       ///< after the step
  TensorMetrics metrics;  ///< must contain "loss"
  Key key = Key();        ///< for the next step
};

/// A training step and an evaluation step, for `TrainerOptions`.
using TrainStepFn = std::function<StepResult(const TrainState& state, Key key, const Batch& batch)>;
using ValStepFn = std::function<TensorMetrics(const TrainState& state, const Batch& batch)>;

/// The default training step: loss, gradients, one update.
StepResult train_step(const TrainState& state, Key key, const Batch& batch);
/// The default evaluation step: the loss.
TensorMetrics val_step(const TrainState& state, const Batch& batch);

}  // namespace gradus::functional
