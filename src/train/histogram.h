#pragma once

#include <gradus/trackers/tracker.h>
#include <torch/types.h>

#include <optional>

namespace gradus {

/// How the finite values of a tensor are distributed, in the buckets of torch's SummaryWriter:
/// their limits grow by a tenth from 1e-12 to 1e20, on both sides of 0. None without a finite
/// value. Counts on the tensor's device and waits for it.
std::optional<Histogram> histogram_of(const torch::Tensor& values);

}  // namespace gradus
