#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <vector>

#include "cuda/kernels/tensor_arguments.h"

namespace gradus::cuda {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// Elements are walked in memory order, so every list must lie like the first.
void check_like(const Tensor& first, const Tensor& other, const char* what) {
  TORCH_CHECK(other.device() == first.device() && other.sizes() == first.sizes() &&
                  other.strides() == first.strides() && other.is_non_overlapping_and_dense(),
              "gradus adamw_, ", what, ": expected a dense tensor of shape ", first.sizes(),
              " and strides ", first.strides(), " on ", first.device(), ", received shape ",
              other.sizes(), ", strides ", other.strides(), " on ", other.device());
}

void check_float(const Tensor& tensor, const char* what) {
  TORCH_CHECK(tensor.scalar_type() == at::kFloat, "gradus adamw_, ", what,
              ": expected float32, received ", tensor.scalar_type());
}

void adamw_of(at::TensorList masters, at::TensorList weights, at::TensorList grads,
              at::TensorList exp_avg, at::TensorList exp_avg_sq, const Tensor& lr,
              const Tensor& step, const OptionalTensor& clip_coef, const OptionalTensor& grad_scale,
              const OptionalTensor& found_inf, double beta1, double beta2, double eps,
              double weight_decay, bool maximize) {
  const auto count = masters.size();
  TORCH_CHECK(grads.size() == count && exp_avg.size() == count && exp_avg_sq.size() == count &&
                  (weights.empty() || weights.size() == count),
              "gradus adamw_: the lists have ", count, ", ", weights.size(), ", ", grads.size(),
              ", ", exp_avg.size(), " and ", exp_avg_sq.size(), " tensors");
  if (count == 0) return;
  std::vector<AdamWTensor> tensors(count);
  for (size_t i = 0; i < count; ++i) {
    const auto& master = masters[i];
    check_float(master, "masters");
    check_float(exp_avg[i], "exp_avg");
    check_float(exp_avg_sq[i], "exp_avg_sq");
    TORCH_CHECK(master.device() == masters[0].device() && master.is_non_overlapping_and_dense(),
                "gradus adamw_, masters: expected dense tensors on ", masters[0].device());
    check_like(master, grads[i], "grads");
    check_like(master, exp_avg[i], "exp_avg");
    check_like(master, exp_avg_sq[i], "exp_avg_sq");
    auto& tensor = tensors[i];
    tensor.master = master.mutable_data_ptr<float>();
    tensor.grad = grads[i].const_data_ptr();
    tensor.grad_type = element_of(grads[i]);
    tensor.exp_avg = exp_avg[i].mutable_data_ptr<float>();
    tensor.exp_avg_sq = exp_avg_sq[i].mutable_data_ptr<float>();
    tensor.count = master.numel();
    if (weights.empty()) continue;
    check_like(master, weights[i], "weights");
    tensor.weight = weights[i].mutable_data_ptr();
    tensor.weight_type = element_of(weights[i]);
  }
  const auto device = masters[0].device();
  const auto optional_scalar = [&](const OptionalTensor& scalar, const char* what) {
    return scalar ? scalar_on(*scalar, device, what) : nullptr;
  };
  AdamWStep settings{};
  settings.lr = scalar_on(lr, device, "gradus adamw_, lr");
  settings.step = scalar_on(step, device, "gradus adamw_, step");
  settings.clip_coef = optional_scalar(clip_coef, "gradus adamw_, clip_coef");
  settings.grad_scale = optional_scalar(grad_scale, "gradus adamw_, grad_scale");
  settings.found_inf = optional_scalar(found_inf, "gradus adamw_, found_inf");
  settings.beta1 = beta1;
  settings.beta2 = beta2;
  settings.eps = float(eps);
  settings.weight_decay = float(weight_decay);
  settings.maximize = maximize;
  const c10::cuda::CUDAGuard guard(device);
  C10_CUDA_CHECK(adamw(tensors.data(), tensors.size(), settings, stream_of(masters[0])));
}

std::vector<ListTensor> list_of(at::TensorList tensors) {
  std::vector<ListTensor> list;
  list.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    TORCH_CHECK(tensor.is_non_overlapping_and_dense() && tensor.device() == tensors[0].device(),
                "gradus list operation: expected dense tensors on ", tensors[0].device(),
                ", received strides ", tensor.strides(), " on ", tensor.device());
    list.push_back({tensor.data_ptr(), tensor.numel(), element_of(tensor)});
  }
  return list;
}

Tensor grad_norm_of(at::TensorList grads) {
  const c10::cuda::CUDAGuard device(grads[0].device());
  // a tensor that does not lie densely is copied: rare, and the norm does not mind the order
  std::vector<Tensor> dense;
  for (const auto& grad : grads)
    dense.push_back(grad.is_non_overlapping_and_dense() ? grad : grad.contiguous());
  const auto list = list_of(dense);
  const auto options = grads[0].options().dtype(at::kFloat);
  auto norm = at::empty({}, options);
  const auto partial = at::empty({list_norm_scratch(list.data(), list.size())}, options);
  C10_CUDA_CHECK(list_norm(list.data(), list.size(), partial.mutable_data_ptr<float>(),
                           norm.mutable_data_ptr<float>(), stream_of(grads[0])));
  return norm;
}

void scale_of(at::TensorList tensors, const Tensor& factor) {
  const c10::cuda::CUDAGuard device(tensors[0].device());
  const auto list = list_of(tensors);
  C10_CUDA_CHECK(list_scale(list.data(), list.size(),
                            scalar_on(factor, tensors[0].device(), "gradus scale_, factor"),
                            stream_of(tensors[0])));
}

}  // namespace
}  // namespace gradus::cuda

TORCH_LIBRARY_IMPL(gradus, CUDA, library) {
  library.impl("adamw_", gradus::cuda::adamw_of);
  library.impl("grad_norm", gradus::cuda::grad_norm_of);
  library.impl("scale_", gradus::cuda::scale_of);
}
