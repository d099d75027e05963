#pragma once

#include <gradus/models/model_output.h>

#include <optional>

namespace gradus {

/// Cross entropy with smoothed labels, HF's LabelSmoother.
class LabelSmoother {
 public:
  explicit LabelSmoother(double epsilon, int64_t ignore_index = -100)
      : epsilon_(epsilon), ignore_index_(ignore_index) {}

  /// `shift_labels`: position t is compared with label t + 1. The sum is divided by
  /// `num_items_in_batch` or, without, by the number of labels that are not ignored.
  torch::Tensor operator()(const ModelOutput& outputs, torch::Tensor labels, bool shift_labels,
                           const std::optional<torch::Tensor>& num_items_in_batch) const;

 private:
  double epsilon_;
  int64_t ignore_index_;
};

}  // namespace gradus
