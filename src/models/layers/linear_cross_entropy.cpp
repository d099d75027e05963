#include <gradus/core/error.h>
#include <gradus/kernels/fused.h>
#include <gradus/models/layers/linear_cross_entropy.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

namespace gradus::layers {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

constexpr int64_t kChunkElements = int64_t{1} << 24;  // logits held at a time
constexpr int64_t kCpuChunkElements = int64_t{1}
                                      << 22;  // what a processor's cache still helps with
constexpr int64_t kChunkRows = 256;  // at least so many rows, so that the products stay efficient

struct Wanted {
  bool hidden = false, weight = false, bias = false;
  bool any() const { return hidden || weight || bias; }
};

struct Sums {
  Tensor loss, hidden, weight, bias;
};

/// One chunk: adds its loss, and turns its logits into gradients.
/// `scale` is what each row's gradient is multiplied by, `keep` masks rows without label (or
/// undefined).
void add_chunk(Sums& sums, const Wanted& wanted, const Tensor& hidden, const Tensor& weight,
               const Tensor& bias, const Tensor& labels, const Tensor& keep, const Tensor& scale,
               int64_t first) {
  const auto product =
      bias.defined() ? at::linear(hidden, weight, bias) : at::linear(hidden, weight);
  auto logits = product.to(torch::kFloat);
  const auto targets = labels.unsqueeze(1);
  const auto chosen = logits.gather(1, targets);
  const auto highest = logits.amax(1, /*keepdim=*/true);
  logits.sub_(highest).exp_();  // once, for the loss and for the gradients
  const auto sum = logits.sum(1, /*keepdim=*/true);
  auto losses = sum.log() + highest - chosen;
  if (keep.defined()) losses.masked_fill_(keep.logical_not().unsqueeze(1), 0.0);
  sums.loss.add_(losses.sum());
  if (!wanted.any()) return;

  logits.mul_(scale / sum);  // softmax times scale
  logits.scatter_add_(1, targets, scale.neg().expand_as(targets));
  if (keep.defined()) logits.mul_(keep.unsqueeze(1));
  const auto grads = logits.to(product.scalar_type());
  if (wanted.hidden) {
    auto rows = sums.hidden.narrow(0, first, hidden.size(0));
    if (rows.scalar_type() == grads.scalar_type() && weight.scalar_type() == grads.scalar_type())
      torch::mm_out(rows, grads, weight);
    else
      rows.copy_(torch::mm(grads, weight.to(grads.scalar_type())));
  }
  if (wanted.weight) {
    if (grads.scalar_type() == sums.weight.scalar_type() &&
        hidden.scalar_type() == grads.scalar_type())
      first == 0 ? static_cast<void>(torch::mm_out(sums.weight, grads.t(), hidden))
                 : static_cast<void>(sums.weight.addmm_(grads.t(), hidden));
    else if (first == 0)
      sums.weight.copy_(torch::mm(grads.t(), hidden.to(grads.scalar_type())));
    else
      sums.weight.add_(torch::mm(grads.t(), hidden.to(grads.scalar_type())));
  }
  if (wanted.bias) sums.bias.add_(logits.sum(0));
}

/// Loss and, where wanted, its gradients. `rows` selects the rows with a label (CPU), or is
/// undefined for all of them.
Sums compute(const Tensor& all_hidden, const Tensor& weight, const Tensor& bias,
             const Tensor& all_labels, const Tensor& rows, const Tensor& keep, const Tensor& scale,
             const Wanted& wanted) {
  const auto hidden = rows.defined() ? all_hidden.index_select(0, rows) : all_hidden;
  const auto labels = rows.defined()   ? all_labels.index_select(0, rows)
                      : keep.defined() ? all_labels.masked_fill(keep.logical_not(), 0)
                                       : all_labels;
  Sums sums;
  const auto wide = hidden.options().dtype(torch::kFloat);
  sums.loss = at::zeros({}, wide);
  if (wanted.hidden) sums.hidden = at::empty(hidden.sizes(), hidden.options());
  if (wanted.weight)
    sums.weight =
        hidden.size(0) == 0 ? at::zeros(weight.sizes(), wide) : at::empty(weight.sizes(), wide);
  if (wanted.bias) sums.bias = at::zeros(bias.sizes(), wide);
  const auto step = std::max(kChunkRows, (hidden.is_cpu() ? kCpuChunkElements : kChunkElements) /
                                             std::max<int64_t>(weight.size(0), 1));
  for (int64_t first = 0; first < hidden.size(0); first += step) {
    const auto count = std::min(step, hidden.size(0) - first);
    add_chunk(sums, wanted, hidden.narrow(0, first, count), weight, bias,
              labels.narrow(0, first, count),
              keep.defined() ? keep.narrow(0, first, count) : Tensor(), scale, first);
  }
  sums.loss.mul_(scale);
  if (wanted.hidden && rows.defined())
    sums.hidden = at::zeros(all_hidden.sizes(), hidden.options()).index_copy_(0, rows, sums.hidden);
  if (wanted.weight) sums.weight = sums.weight.to(weight.scalar_type());
  if (wanted.bias) sums.bias = sums.bias.to(bias.scalar_type());
  return sums;
}

/// What goes along without being differentiated.
struct Plan {
  Tensor labels, rows, keep, scale;
  bool with_gradients = false;
};

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& weight,
                        const std::optional<Tensor>& given_bias, const Plan& plan) {
    const auto bias = given_bias.value_or(Tensor());
    Wanted wanted;
    if (plan.with_gradients)
      wanted = {hidden.requires_grad(), weight.requires_grad(),
                bias.defined() && bias.requires_grad()};
    auto sums =
        compute(hidden, weight, bias, plan.labels, plan.rows, plan.keep, plan.scale, wanted);
    context->saved_data["hidden"] = sums.hidden;
    context->saved_data["weight"] = sums.weight;
    context->saved_data["bias"] = sums.bias;
    return sums.loss;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    if (context->saved_data.empty())
      throw Error("G-MODEL-12", ErrorKind::training,
                  "backward ran a second time through a loss whose logits were not kept",
                  "Run the model with ForwardOptions::need_logits to use its loss more than once.");
    const auto take = [&](const char* name) {
      auto value = context->saved_data[name].toTensor();
      context->saved_data.erase(name);
      return value;
    };
    variable_list result = {take("hidden"), take("weight"), take("bias"), Tensor()};
    context->saved_data.clear();
    const auto& grad = grads[0];
    if (grad.is_cpu() && grad.item<double>() == 1.0) return result;
    for (auto& tensor : result)
      if (tensor.defined()) tensor.mul_(grad.to(tensor.scalar_type()));
    return result;
  }
};

/// Labels are checked where that does not wait for a device.
void check_labels(const Tensor& labels, int64_t classes) {
  if (labels.numel() == 0) return;
  const auto [lowest, highest] = labels.aminmax();
  const auto low = lowest.item<int64_t>(), high = highest.item<int64_t>();
  if (low >= 0 && high < classes) return;
  throw Error(
      "G-MODEL-10", ErrorKind::model,
      fmt::format("labels hold {}, but the model has {} classes (0 to {})", low < 0 ? low : high,
                  classes, classes - 1),
      "Use -100 where there is no label. The tokenizer and the model may not belong together.");
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                            const Tensor& labels, const std::optional<Tensor>& num_items,
                            int64_t ignore_index) {
  const auto targets = labels.to(hidden.device());
  const auto labelled = targets.ne(ignore_index);
  Tensor rows, keep, count;
  if (hidden.is_cpu()) {
    rows = labelled.nonzero().squeeze(1);
    check_labels(rows.size(0) == targets.size(0) ? targets : targets.index_select(0, rows),
                 weight.size(0));
    count = torch::full({}, static_cast<double>(rows.size(0)), torch::kFloat);
    if (rows.size(0) == targets.size(0)) rows = Tensor();
  } else {
    keep = labelled;
    count = labelled.sum().to(torch::kFloat);
  }
  const auto scale =
      (num_items ? num_items->to(hidden.device()).to(torch::kFloat).reshape({}) : count)
          .reciprocal();
  if (kernels::linear_cross_entropy_applies(hidden, weight, bias))
    return kernels::linear_cross_entropy(hidden, weight, bias, targets, scale, ignore_index);
  const auto given_bias = bias.defined() ? std::optional(bias) : std::nullopt;
  return LinearCrossEntropyFunction::apply(
      hidden, weight, given_bias, Plan{targets, rows, keep, scale, at::GradMode::is_enabled()});
}

}  // namespace gradus::layers
