#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace gradus {

/// One more token for a beam.
struct Continuation {
  float score;    ///< of the beam with it
  int64_t beam;   ///< number of the beam within its prompt
  int64_t token;  ///< its id
};

/// The `count` best continuations of each prompt, the best first. `log_probs` (prompts · beams,
/// vocabulary) is float32 on any device; `scores` has the beams' own.
std::vector<std::vector<Continuation>> top_continuations(const torch::Tensor& log_probs,
                                                         const std::vector<float>& scores,
                                                         int64_t beams, int64_t count);

/// The same, drawn by their probabilities, in the order in which they were drawn.
std::vector<std::vector<Continuation>> drawn_continuations(const torch::Tensor& log_probs,
                                                           const std::vector<float>& scores,
                                                           int64_t beams, int64_t count);

}  // namespace gradus
