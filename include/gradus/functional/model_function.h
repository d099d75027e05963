#pragma once

#include <gradus/data/batch.h>
#include <gradus/functional/key.h>
#include <gradus/functional/params.h>
#include <gradus/models/model.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>

namespace gradus::functional {

/// Computes the loss from what the model returned for a batch. The loss is a scalar.
using LossFn = std::function<torch::Tensor(const torch::Tensor& prediction, const Batch& batch)>;

/// How a model is called.
struct CallOptions {
  bool train = false;  ///< the module's training mode during the call
  /// Seeds what the forward pass draws, for example dropout. Unset: torch's generators as they are.
  std::optional<Key> key = {};
};

/// A loss and its gradients.
struct ValueAndGrad {
  torch::Tensor value;  ///< the loss, without a graph
  Params grads;         ///< one for every parameter; zeros where the loss does not depend on it
};

/// A torch module as a function of its parameters.
///
/// A call puts the given parameters into the module for its duration. Afterwards the module's own
/// values, its gradients, its mode and torch's generators are as they were before.
/// Parameters that need no gradient and buffers are constants of the model and no part of `Params`.
/// What a forward pass in training mode writes to buffers (running means) is dropped, with one
/// warning. Copies share the module. Thread-safety: calls on one module wait for each other.
class ModelFunction {
 public:
  /// No model.
  ModelFunction() = default;
  /// `forward` runs the module on a batch; it refers to the same object as `module`. `gradus::wrap`
  /// makes one from any module.
  ModelFunction(std::shared_ptr<torch::nn::Module> module,
                std::function<torch::Tensor(const Batch&)> forward);

  /// Whether there is a model.
  explicit operator bool() const { return shared_ != nullptr; }
  /// What the forward pass returns, without an autograd graph. Throws `Error` G-FN-3 when `params`
  /// are not those of this model.
  torch::Tensor operator()(const Params& params, const Batch& batch,
                           const CallOptions& options = {}) const;
  /// The loss and its gradients. Without `loss_fn` the loss is what the forward pass returns.
  /// Throws G-FN-1 when the loss is not a scalar.
  ValueAndGrad value_and_grad(const Params& params, const Batch& batch, const LossFn& loss_fn,
                              const CallOptions& options) const;

  /// Copies of the module's own parameters.
  Params params() const;
  /// Writes parameters into the module, so that it can be used elsewhere.
  void store(const Params& params) const;

 private:
  struct Shared;
  class Call;
  std::shared_ptr<Shared> shared_;
};

}  // namespace gradus::functional

namespace gradus {

/// Makes a `ModelFunction` from any torch module and a function `(Impl&, const Batch&) -> Tensor`
/// that runs it. `module` is a holder, for example `torch::nn::Linear(4, 1)`, or a `shared_ptr` to
/// a module; a `gradus::Model` is one too.
template <class Holder, class F>
functional::ModelFunction wrap(Holder module, F function) {
  auto pointer = detail::module_ptr(module);
  auto* impl = pointer.get();
  static_assert(std::is_invocable_r_v<torch::Tensor, F&, decltype(*impl), const Batch&>,
                "wrap needs a function (Impl&, const Batch&) that gives a tensor");
  return functional::ModelFunction(
      std::move(pointer),
      [impl, function = std::move(function)](const Batch& batch) mutable -> torch::Tensor {
        return function(*impl, batch);
      });
}

}  // namespace gradus
