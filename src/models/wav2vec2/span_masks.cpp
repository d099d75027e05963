#include <gradus/core/error.h>
#include <gradus/models/span_masks.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

namespace gradus {

using torch::Tensor;

namespace {

/// How many spans a row of `used` places gets; `rounding` in [0, 1) decides about the fraction.
int64_t span_count(int64_t used, int64_t length, const SpanMaskOptions& options, double rounding) {
  auto count = static_cast<int64_t>(options.mask_prob * static_cast<double>(used) /
                                        static_cast<double>(options.mask_length) +
                                    rounding);
  count = std::max(count, options.min_masks);
  if (count * options.mask_length > length) count = length / options.mask_length;
  return std::min(count, std::max<int64_t>(used - (options.mask_length - 1), 0));
}

[[noreturn]] void refuse_masks(const std::string& message, const char* advice) {
  throw Error("G-MODEL-40", ErrorKind::data, message, advice);
}

}  // namespace

Tensor compute_mask_indices(int64_t rows, int64_t length, const SpanMaskOptions& options,
                            NumpyRandomState& random) {
  if (options.mask_length < 1 || options.mask_length > length)
    refuse_masks(fmt::format("cannot mask spans of {} in a row of {}", options.mask_length, length),
                 "The audio of this batch is too short: leave out short clips "
                 "(--min_duration_in_seconds), or lower mask_time_length and mask_feature_length.");
  const auto rounding = random.rand();
  auto mask = at::zeros({rows, length}, torch::kBool);
  const auto most = span_count(length, length, options, rounding);
  if (most == 0) return mask;
  auto* masked = mask.data_ptr<bool>();
  for (int64_t row = 0; row < rows; ++row, masked += length) {
    const auto used = options.lengths ? options.lengths->at(static_cast<size_t>(row)) : length;
    const auto count = span_count(used, length, options, rounding);
    // All places are put into random order, as numpy's `choice` does, and the first ones are used.
    const auto order = random.permutation(used - (options.mask_length - 1));
    const auto starts = std::min(count, static_cast<int64_t>(order.size()));
    for (int64_t i = 0; i < starts; ++i) {
      const auto start = order[static_cast<size_t>(i)];
      std::fill(masked + start, masked + std::min(start + options.mask_length, length), true);
    }
    if (starts == 0) masked[length - 1] = true;  // a row without spans masks its padding
  }
  return mask;
}

Tensor sample_negative_indices(const Tensor& mask_time_indices, int64_t num_negatives,
                               NumpyRandomState& random) {
  const auto mask = mask_time_indices.to(torch::kCPU, torch::kBool).contiguous();
  const auto rows = mask.size(0), length = mask.size(1);
  auto negatives = at::zeros({rows, length, num_negatives}, torch::kLong);
  const auto* masked = mask.const_data_ptr<bool>();
  auto* numbers = negatives.data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row, masked += length) {
    std::vector<int64_t> places;
    for (int64_t i = 0; i < length; ++i)
      if (masked[i]) places.push_back(i);
    if (places.size() == 1)
      refuse_masks(fmt::format("row {} of the batch has one masked frame: negatives need two", row),
                   "The audio is too short: leave out short clips (--min_duration_in_seconds), or "
                   "raise mask_time_length.");
    for (size_t own = 0; own < places.size(); ++own) {
      auto* drawn = numbers + (row * length + places[own]) * num_negatives;
      for (int64_t i = 0; i < num_negatives; ++i) {
        size_t other = random.below_or_at(static_cast<uint32_t>(places.size() - 2));
        if (other >= own) ++other;
        drawn[i] = places[other];
      }
    }
  }
  // Numbers count through the whole batch.
  for (int64_t row = 0; row < rows; ++row) negatives[row].add_(row * length);
  return negatives;
}

}  // namespace gradus
