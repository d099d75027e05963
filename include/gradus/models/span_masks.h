#pragma once

#include <gradus/core/numpy_random.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace gradus {

/// How spans of an axis are masked: SpecAugment, and the masked frames of wav2vec 2.0.
struct SpanMaskOptions {
  double mask_prob = 0.05;   ///< Share of the axis that spans begin to cover; overlaps lower it.
  int64_t mask_length = 10;  ///< Length of a span.
  int64_t min_masks = 0;     ///< Spans that a row has at least, where they fit.
  /// How much of the axis each row uses; unset: all of it. Spans begin and end within.
  std::optional<std::vector<int64_t>> lengths = std::nullopt;
};

/// Draws spans for each row: (rows, length), true where the axis is masked.
///
/// The numbers are those of transformers' `_compute_mask_indices` for the same state of `random`.
/// Throws `Error` G-MODEL-40 when a span is longer than the axis.
torch::Tensor compute_mask_indices(int64_t rows, int64_t length, const SpanMaskOptions& options,
                                   NumpyRandomState& random);

/// Draws, for every masked frame, `num_negatives` other masked frames of its row.
///
/// `mask_time_indices` (rows, frames) says which frames are masked. The result is (rows, frames,
/// num_negatives) int64: numbers of frames in the batch laid out in one row. Frames that are not
/// masked have the first frame of their row. The numbers are those of transformers'
/// `_sample_negative_indices` for the same state of `random`. Throws `Error` G-MODEL-40 when a row
/// has one masked frame only: there is no other.
torch::Tensor sample_negative_indices(const torch::Tensor& mask_time_indices, int64_t num_negatives,
                                      NumpyRandomState& random);

}  // namespace gradus
