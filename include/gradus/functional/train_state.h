#pragma once

#include <gradus/functional/model_function.h>
#include <gradus/functional/transform.h>

#include <functional>
#include <map>
#include <string>

namespace gradus::functional {

/// All that training changes, as a value. A step makes a new one and leaves the old one as it was.
struct TrainState {
  int64_t step = 0;  ///< steps done
  Params params = {};
  OptState opt_state = {};
  Key key = Key();                  ///< for the next step
  torch::Tensor running_loss = {};  ///< sum of the losses of this epoch; kept by `Trainer::train`

  // Functions, the same for all states of a run.
  ModelFunction apply_fn = {};
  LossFn loss_fn = {};  ///< none: what the model gives is the loss
  GradientTransformation tx = {};

  /// The state before the first step, from the model's present parameters. Throws `Error` G-FN-2
  /// without a model or `tx`.
  static TrainState create(ModelFunction apply_fn, GradientTransformation tx, LossFn loss_fn = {},
                           Key key = Key());

  /// The state after a step with these gradients. Throws `Error` G-FN-3 when they are not those of
  /// `params`.
  TrainState apply_gradients(const Params& grads) const;
};

/// The loss of a batch in training mode, random numbers from `key`, and its gradients. Throws
/// G-FN-1 when it is no scalar.
ValueAndGrad value_and_grad(const TrainState& state, Key key, const Batch& batch);
/// The same with another loss than the state's.
ValueAndGrad value_and_grad(const TrainState& state, Key key, const Batch& batch,
                            const LossFn& loss_fn);
/// The loss of a batch in evaluation mode.
torch::Tensor loss(const TrainState& state, const Batch& batch);

using TensorMetrics = std::map<std::string, torch::Tensor>;

struct StepResult {
  TrainState state;
  TensorMetrics metrics;  ///< must have "loss"
  Key key = Key();        ///< for the next step
};

using TrainStepFn = std::function<StepResult(const TrainState& state, Key key, const Batch& batch)>;
using ValStepFn = std::function<TensorMetrics(const TrainState& state, const Batch& batch)>;

/// The plain steps: loss, gradients, one update; and the loss alone.
StepResult train_step(const TrainState& state, Key key, const Batch& batch);
TensorMetrics val_step(const TrainState& state, const Batch& batch);

}  // namespace gradus::functional
