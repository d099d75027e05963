#include "kernels/operators.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <gradus/kernels/form.h>
#include <torch/library.h>

#include <atomic>

namespace gradus::kernels {

namespace {

std::atomic<Form> chosen_form = Form::automatic;

/// The operator `name` as a function, below autograd.
template <typename Signature>
struct Operator;
template <typename Result, typename... Arguments>
struct Operator<Result(Arguments...)> {
  explicit Operator(const char* name)
      : handle(c10::Dispatcher::singleton()
                   .findSchemaOrThrow(name, "")
                   .typed<Result(Arguments...)>()) {}
  Result operator()(Arguments... arguments) const {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return handle.call(std::forward<Arguments>(arguments)...);
  }
  c10::TypedOperatorHandle<Result(Arguments...)> handle;
};

bool is_aligned(const Tensor& x) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

}  // namespace

Form set_form(Form form) { return chosen_form.exchange(form); }
Form current_form() { return chosen_form.load(std::memory_order_relaxed); }

bool have_cuda_kernels() {
  static std::atomic<bool> known = false;
  if (known.load(std::memory_order_relaxed)) return true;
  const auto schema = c10::Dispatcher::singleton().findSchema({"gradus::swiglu", ""});
  if (!schema || !schema->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) return false;
  known = true;
  return true;
}

bool takes_kernel_of_any_layout(const Tensor& x) {
  const auto form = current_form();
  if (form == Form::fused) return true;
  if (!x.is_cuda() || form == Form::plain || !have_cuda_kernels()) return false;
  const auto type = x.scalar_type();
  return (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) &&
         !at::autocast::is_autocast_enabled(at::kCUDA);
}

bool takes_kernel(const Tensor& x) {
  return takes_kernel_of_any_layout(x) && (!x.is_cuda() || (x.is_contiguous() && is_aligned(x)));
}

namespace ops {

std::tuple<Tensor, Tensor, Tensor, Tensor> add_layer_norm(const OptionalTensor& residual,
                                                          const Tensor& x, const Tensor& weight,
                                                          const Tensor& bias, double eps) {
  static const Operator<decltype(add_layer_norm)> call("gradus::add_layer_norm");
  return call(residual, x, weight, bias, eps);
}
std::tuple<Tensor, Tensor, Tensor> add_layer_norm_backward(const Tensor& grad_out,
                                                           const OptionalTensor& grad_sum,
                                                           const Tensor& sum, const Tensor& weight,
                                                           const Tensor& mean, const Tensor& rstd) {
  static const Operator<decltype(add_layer_norm_backward)> call("gradus::add_layer_norm_backward");
  return call(grad_out, grad_sum, sum, weight, mean, rstd);
}
std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const OptionalTensor& residual, const Tensor& x,
                                                const Tensor& weight, double eps) {
  static const Operator<decltype(add_rms_norm)> call("gradus::add_rms_norm");
  return call(residual, x, weight, eps);
}
std::tuple<Tensor, Tensor> add_rms_norm_backward(const Tensor& grad_out,
                                                 const OptionalTensor& grad_sum, const Tensor& sum,
                                                 const Tensor& weight, const Tensor& rstd) {
  static const Operator<decltype(add_rms_norm_backward)> call("gradus::add_rms_norm_backward");
  return call(grad_out, grad_sum, sum, weight, rstd);
}
Tensor swiglu(const Tensor& gate, const Tensor& up) {
  static const Operator<decltype(swiglu)> call("gradus::swiglu");
  return call(gate, up);
}
std::tuple<Tensor, Tensor, Tensor> swiglu_backward(const Tensor& grad, const Tensor& gate,
                                                   const Tensor& up, bool product) {
  static const Operator<decltype(swiglu_backward)> call("gradus::swiglu_backward");
  return call(grad, gate, up, product);
}
void swiglu_backward_(const Tensor& grad, Tensor gate, Tensor up) {
  static const Operator<decltype(swiglu_backward_)> call("gradus::swiglu_backward_");
  call(grad, gate, up);
}
std::tuple<Tensor, Tensor> rotary(const Tensor& query, const Tensor& key, const Tensor& cos,
                                  const Tensor& sin, bool inverse) {
  static const Operator<decltype(rotary)> call("gradus::rotary");
  return call(query, key, cos, sin, inverse);
}
void cross_entropy_(Tensor logits, const Tensor& labels, const Tensor& scale, Tensor losses,
                    int64_t classes, int64_t ignore_index, bool gradient) {
  static const Operator<decltype(cross_entropy_)> call("gradus::cross_entropy_");
  call(logits, labels, scale, losses, classes, ignore_index, gradient);
}
void token_scores_(Tensor logits, const Tensor& labels, Tensor scores,
                   const OptionalTensor& factors, const OptionalTensor& entropy_factors,
                   double temperature, int64_t classes, int64_t ignore_index, bool weighted) {
  static const Operator<decltype(token_scores_)> call("gradus::token_scores_");
  call(logits, labels, scores, factors, entropy_factors, temperature, classes, ignore_index,
       weighted);
}
Tensor pack_heads(const Tensor& query, const Tensor& key, const Tensor& value) {
  static const Operator<decltype(pack_heads)> call("gradus::pack_heads");
  return call(query, key, value);
}
Tensor column_sum(const Tensor& x) {
  static const Operator<decltype(column_sum)> call("gradus::column_sum");
  return call(x);
}
void adamw_(at::TensorList masters, at::TensorList weights, at::TensorList grads,
            at::TensorList exp_avg, at::TensorList exp_avg_sq, const Tensor& lr, const Tensor& step,
            const OptionalTensor& clip_coef, const OptionalTensor& grad_scale,
            const OptionalTensor& found_inf, double beta1, double beta2, double eps,
            double weight_decay, bool maximize) {
  static const Operator<decltype(adamw_)> call("gradus::adamw_");
  call(masters, weights, grads, exp_avg, exp_avg_sq, lr, step, clip_coef, grad_scale, found_inf,
       beta1, beta2, eps, weight_decay, maximize);
}
Tensor grad_norm(at::TensorList grads) {
  static const Operator<decltype(grad_norm)> call("gradus::grad_norm");
  return call(grads);
}
void scale_(at::TensorList tensors, const Tensor& factor) {
  static const Operator<decltype(scale_)> call("gradus::scale_");
  call(tensors, factor);
}
std::tuple<Tensor, Tensor, Tensor> fp8_cast(at::TensorList parts, int64_t dim, bool wide_range,
                                            bool rows, bool columns, const OptionalTensor& amax) {
  static const Operator<decltype(fp8_cast)> call("gradus::fp8_cast");
  return call(parts, dim, wide_range, rows, columns, amax);
}
Tensor fp8_product(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                   const OptionalTensor& bias, bool fast) {
  static const Operator<decltype(fp8_product)> call("gradus::fp8_product");
  return call(a, b, scale_a, scale_b, bias, fast);
}
std::tuple<Tensor, Tensor> gated_rows(const Tensor& gate, const Tensor& up) {
  static const Operator<decltype(gated_rows)> call("gradus::gated_rows");
  return call(gate, up);
}
Tensor gated_rows_backward(const Tensor& grad, const Tensor& gate, const Tensor& up) {
  static const Operator<decltype(gated_rows_backward)> call("gradus::gated_rows_backward");
  return call(grad, gate, up);
}

Tensor nf4_dense(const Tensor& packed, const Tensor& absmax, const OptionalTensor& codes,
                 const OptionalTensor& values, const OptionalTensor& offset, at::IntArrayRef sizes,
                 at::ScalarType type) {
  static const Operator<decltype(nf4_dense)> call("gradus::nf4_dense");
  return call(packed, absmax, codes, values, offset, sizes, type);
}

}  // namespace ops

}  // namespace gradus::kernels

TORCH_LIBRARY(gradus, library) {
  library.def(
      "add_layer_norm(Tensor? residual, Tensor x, Tensor weight, Tensor bias, float eps) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "add_layer_norm_backward(Tensor grad_out, Tensor? grad_sum, Tensor sum, Tensor weight, "
      "Tensor mean, Tensor rstd) -> (Tensor, Tensor, Tensor)");
  library.def(
      "add_rms_norm(Tensor? residual, Tensor x, Tensor weight, float eps) -> (Tensor, Tensor, "
      "Tensor)");
  library.def(
      "add_rms_norm_backward(Tensor grad_out, Tensor? grad_sum, Tensor sum, Tensor weight, Tensor "
      "rstd) -> (Tensor, Tensor)");
  library.def("swiglu(Tensor gate, Tensor up) -> Tensor");
  library.def(
      "swiglu_backward(Tensor grad, Tensor gate, Tensor up, bool product) -> (Tensor, Tensor, "
      "Tensor)");
  library.def("swiglu_backward_(Tensor grad, Tensor(a!) gate, Tensor(b!) up) -> ()");
  library.def(
      "rotary(Tensor query, Tensor key, Tensor cos, Tensor sin, bool inverse) -> (Tensor, Tensor)");
  library.def(
      "cross_entropy_(Tensor(a!) logits, Tensor labels, Tensor scale, Tensor(b!) losses, int "
      "classes, int ignore_index, bool gradient) -> ()");
  library.def(
      "token_scores_(Tensor(a!) logits, Tensor labels, Tensor(b!) scores, Tensor? factors, Tensor? "
      "entropy_factors, float temperature, int classes, int ignore_index, bool weighted) -> ()");
  library.def("pack_heads(Tensor query, Tensor key, Tensor value) -> Tensor");
  library.def("column_sum(Tensor x) -> Tensor");
  library.def(
      "adamw_(Tensor(a!)[] masters, Tensor(b!)[] weights, Tensor[] grads, Tensor(c!)[] exp_avg, "
      "Tensor(d!)[] exp_avg_sq, Tensor lr, Tensor step, "
      "Tensor? clip_coef, Tensor? grad_scale, Tensor? found_inf, float beta1, float beta2, float "
      "eps, float weight_decay, bool maximize) -> ()");
  library.def("grad_norm(Tensor[] grads) -> Tensor");
  library.def("scale_(Tensor(a!)[] tensors, Tensor factor) -> ()");
  library.def(
      "fp8_cast(Tensor[] parts, int dim, bool wide_range, bool rows, bool columns, Tensor? amax) "
      "-> "
      "(Tensor, Tensor, Tensor)");
  library.def(
      "fp8_product(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias, bool fast) -> "
      "Tensor");
  library.def("gated_rows(Tensor gate, Tensor up) -> (Tensor, Tensor)");
  library.def(
      "nf4_dense(Tensor packed, Tensor absmax, Tensor? codes, Tensor? values, Tensor? offset, "
      "int[] "
      "sizes, ScalarType type) -> Tensor");
  library.def("gated_rows_backward(Tensor grad, Tensor gate, Tensor up) -> Tensor");
  library.def(
      "ctc_loss_with_gradient(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor "
      "target_lengths, int blank, bool zero_infinity) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(gradus, CompositeExplicitAutograd, library) {
  namespace plain = gradus::kernels::plain;
  library.impl("add_layer_norm", plain::add_layer_norm);
  library.impl("add_layer_norm_backward", plain::add_layer_norm_backward);
  library.impl("add_rms_norm", plain::add_rms_norm);
  library.impl("add_rms_norm_backward", plain::add_rms_norm_backward);
  library.impl("swiglu", plain::swiglu);
  library.impl("swiglu_backward", plain::swiglu_backward);
  library.impl("swiglu_backward_", plain::swiglu_backward_);
  library.impl("rotary", plain::rotary);
  library.impl("cross_entropy_", plain::cross_entropy_);
  library.impl("token_scores_", plain::token_scores_);
  library.impl("pack_heads", plain::pack_heads);
  library.impl("column_sum", plain::column_sum);
  library.impl("adamw_", plain::adamw_);
  library.impl("grad_norm", plain::grad_norm);
  library.impl("scale_", plain::scale_);
  library.impl("fp8_cast", plain::fp8_cast);
  library.impl("fp8_product", plain::fp8_product);
  library.impl("gated_rows", plain::gated_rows);
  library.impl("nf4_dense", plain::nf4_dense);
  library.impl("gated_rows_backward", plain::gated_rows_backward);
  library.impl("ctc_loss_with_gradient", plain::ctc_loss_with_gradient);
}
