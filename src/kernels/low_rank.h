#pragma once

#include <gradus/kernels/fused.h>

namespace gradus::kernels {

/// y += scale · rows · bᵀ, in the memory of `y`.
void add_low_rank(torch::Tensor& y, const torch::Tensor& rows, const torch::Tensor& b,
                  double scale);

/// Which gradients of `low_rank_gradients` are formed.
struct LowRankWanted {
  bool a = false, b = false;
};

/// Gradients of the second summand of `lora_linear`.
struct LowRankGradients {
  torch::Tensor rows;  ///< Of x · aᵀ, without the scale.
  torch::Tensor a, b;  ///< Undefined unless they were asked for.
};

/// `grad` is that of the output, `rows` are x · aᵀ; all are matrices.
LowRankGradients low_rank_gradients(const torch::Tensor& grad, const torch::Tensor& x,
                                    const torch::Tensor& rows, const LowRank& low,
                                    const LowRankWanted& wanted);

/// `swiglu_linear` with an adapter where the kernels take all tensors.
torch::Tensor swiglu_lora_linear(const torch::Tensor& gate, const torch::Tensor& up,
                                 const torch::Tensor& weight, const torch::Tensor& bias,
                                 const LowRank& low);

}  // namespace gradus::kernels
