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

/// Makes the loss of what the model gave for a batch.
using LossFn = std::function<torch::Tensor(const torch::Tensor& prediction, const Batch& batch)>;

struct CallOptions {
  bool train = false;  ///< the module's training mode during the call
  std::optional<Key> key =
      {};  ///< seeds what the forward draws (dropout); not given: torch's generators as they stand
};

struct ValueAndGrad {
  torch::Tensor value;  ///< the loss, without a graph
  Params grads;         ///< one for every parameter; zeros where the loss does not depend on it
};

/// A torch module as a function of its parameters.
///
/// A call lends the module the parameters it is given and takes them back afterwards; the module's
/// own values, its gradients, its mode and torch's generators are then as they were. Parameters
/// that need no gradient are constants of the model and no part of `Params`; so are buffers: what a
/// forward in training mode writes to them (running means) is dropped, with one warning. Copies
/// share the module. Thread-safety: calls on one module wait for each other.
class ModelFunction {
 public:
  ModelFunction() = default;
  ModelFunction(std::shared_ptr<torch::nn::Module> module,
                std::function<torch::Tensor(const Batch&)> forward);

  explicit operator bool() const { return shared_ != nullptr; }
  /// What forward gives, without a graph. Throws `Error` G-FN-3 when `params` are not those of this
  /// model.
  torch::Tensor operator()(const Params& params, const Batch& batch,
                           const CallOptions& options = {}) const;
  /// The loss and its gradients; without `loss_fn` what forward gives is the loss. Throws G-FN-1
  /// when that is no scalar.
  ValueAndGrad value_and_grad(const Params& params, const Batch& batch, const LossFn& loss_fn,
                              const CallOptions& options) const;

  /// Copies of the module's own parameters.
  Params params() const;
  /// Writes parameters into the module, to use it elsewhere.
  void store(const Params& params) const;

 private:
  struct Shared;
  class Call;
  std::shared_ptr<Shared> shared_;
};

}  // namespace gradus::functional

namespace gradus {

/// Makes a function of any torch module and a function `(Impl&, const Batch&) -> Tensor`.
/// `module` is a holder (`torch::nn::Linear(4, 1)`) or a `shared_ptr` to a module, `gradus::Model`
/// included.
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
