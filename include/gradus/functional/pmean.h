#pragma once

#include <gradus/functional/params.h>

namespace gradus::functional {

/// The mean over the processes of the run, the same in each of them: what `jax.lax.pmean` is inside
/// a `pmap`. In a single process the values themselves.
///
/// `value_and_grad` and `loss` of a state call it. A step that computes its gradients otherwise
/// must take their mean itself, or the processes train different models. Every process calls it in
/// the same order. Throws `Error` G-DIST-2 when a process is lost.
Params pmean(const Params& values);
/// The same of one tensor, for example a loss.
torch::Tensor pmean(const torch::Tensor& value);

}  // namespace gradus::functional
