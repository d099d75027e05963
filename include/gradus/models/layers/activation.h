#pragma once

#include <torch/types.h>

#include <string>

namespace gradus::layers {

using Activation = torch::Tensor (*)(const torch::Tensor&);

/// The function transformers knows under `name` ("gelu", "gelu_new", "gelu_pytorch_tanh", "silu",
/// "relu", …). Throws `Error` G-MODEL-5 with the names there are.
Activation activation_named(const std::string& name);

/// silu(gate) · up; keeps only `gate` and `up` for the backward pass.
torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);

}  // namespace gradus::layers
