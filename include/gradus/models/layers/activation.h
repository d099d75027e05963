#pragma once

#include <torch/types.h>

#include <string>

/// The building blocks of the models.
namespace gradus::layers {

/// A function applied to every element.
using Activation = torch::Tensor (*)(const torch::Tensor&);

/// The function that transformers calls `name`: "gelu", "gelu_new", "gelu_pytorch_tanh", "silu",
/// "relu" and so on. Throws `Error` G-MODEL-5 with the names that exist.
Activation activation_named(const std::string& name);

/// silu(gate) · up. Keeps only `gate` and `up` for the backward pass.
torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);

}  // namespace gradus::layers
