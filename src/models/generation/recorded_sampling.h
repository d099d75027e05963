#pragma once

#include <memory>
#include <optional>

#include "kernels/recorder.h"
#include "models/generation/decoding_loop.h"

namespace gradus {

/// Tokens that a cache of fixed shape has room for: rows of at most `limit` tokens that have
/// `length` now.
int64_t room_for_tokens(int64_t length, int64_t limit);

/// Whether generation on `device` can be recorded, and rows of at most `new_tokens` more are worth
/// it: the recorder, or null.
std::shared_ptr<const kernels::Recorder> generation_recorder(torch::Device device,
                                                             int64_t new_tokens);

/// Greedy search and sampling whose steps are recorded once and replayed: a step is then one
/// launch, and the host looks only from time to time whether all rows are finished. Finished rows
/// leave the batch. The tokens are those of `sample`, the random numbers included.
///
/// `nullopt`, with nothing done, where there is no recorder for the device, for models with an
/// encoder, and where the model or the options want something of the host in every step.
std::optional<torch::Tensor> sample_recorded(Decoder& decoder, const DecodingPlan& plan);

}  // namespace gradus
