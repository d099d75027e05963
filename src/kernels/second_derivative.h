#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace gradus::kernels {

/// The backward pass of `plain` at `inputs` in operations that can be differentiated once more; for
/// backward passes that run with create_graph. `plain` makes one output of the inputs; those that
/// need no gradient get an undefined one.
template <typename Plain>
torch::autograd::variable_list differentiable_backward(const Plain& plain,
                                                       const torch::autograd::variable_list& inputs,
                                                       const torch::Tensor& grad) {
  const auto output = plain(inputs);
  torch::autograd::variable_list wanted, result(inputs.size());
  for (const auto& input : inputs)
    if (input.requires_grad()) wanted.push_back(input);
  const auto grads = torch::autograd::grad({output}, wanted, {grad}, /*retain_graph=*/true,
                                           /*create_graph=*/true, /*allow_unused=*/true);
  size_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].requires_grad()) result[i] = grads[next++];
  return result;
}

}  // namespace gradus::kernels
