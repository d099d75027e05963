#pragma once

#include <optional>

#include "models/generation/decoding_loop.h"

namespace gradus {

/// Greedy search and sampling whose steps are recorded once and replayed: a step is then one
/// launch, and the host looks only from time to time whether all rows are finished. Finished rows
/// leave the batch. The tokens are those of `sample`, the random numbers included.
///
/// `nullopt`, with nothing done, where there is no recorder for the device, and where the model or
/// the options want something of the host in every step.
std::optional<torch::Tensor> sample_recorded(Decoder& decoder, const DecodingPlan& plan);

}  // namespace gradus
