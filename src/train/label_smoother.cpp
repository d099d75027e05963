#include "train/label_smoother.h"

namespace gradus {

torch::Tensor LabelSmoother::operator()(
    const ModelOutput& outputs, torch::Tensor labels, bool shift_labels,
    const std::optional<torch::Tensor>& num_items_in_batch) const {
  auto logits = outputs.contains("logits") ? outputs["logits"] : outputs[0];
  if (shift_labels) {
    logits = logits.slice(-2, 0, -1).contiguous();
    labels = labels.slice(-1, 1).contiguous();
  }
  const auto neg_log_probs = -logits.log_softmax(-1);
  if (labels.dim() == neg_log_probs.dim() - 1) labels = labels.unsqueeze(-1);
  const auto ignored = labels.eq(ignore_index_);
  const auto nll = neg_log_probs.gather(-1, labels.clamp_min(0)).masked_fill(ignored, 0.0);
  const auto smooth =
      neg_log_probs.sum(-1, /*keepdim=*/true, torch::kFloat).masked_fill(ignored, 0.0);
  const auto denominator =
      num_items_in_batch ? num_items_in_batch->to(nll.device()) : ignored.logical_not().sum();
  return (1 - epsilon_) * (nll.sum() / denominator) +
         epsilon_ * (smooth.sum() / (denominator * neg_log_probs.size(-1)));
}

}  // namespace gradus
