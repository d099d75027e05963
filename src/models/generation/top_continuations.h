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

/// The prompts that are still being written, where some have been left out.
struct OpenPrompts {
  std::vector<int64_t> numbers;  ///< among all
  int64_t all;                   ///< how many there were at first
};

/// The same, drawn by their probabilities, in the order in which they were drawn. The random
/// numbers are those of all prompts, also of those that are left out.
std::vector<std::vector<Continuation>> drawn_continuations(const torch::Tensor& log_probs,
                                                           const std::vector<float>& scores,
                                                           int64_t beams, int64_t count,
                                                           const OpenPrompts& prompts);

/// Draws `count` places in each row of `probabilities` (rows, places) without replacement. They are
/// `rows` of `all` rows, undefined for all; the random numbers are those of all.
torch::Tensor drawn_places(const torch::Tensor& probabilities, const torch::Tensor& rows,
                           int64_t all, int64_t count);

}  // namespace gradus
