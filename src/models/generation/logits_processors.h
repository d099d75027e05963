#pragma once

#include <gradus/models/generation_config.h>

#include <functional>
#include <vector>

namespace gradus {

/// (ids (rows, tokens), scores (rows, vocabulary)) -> scores
using LogitsProcessor =
    std::function<torch::Tensor(const torch::Tensor& ids, torch::Tensor scores)>;

/// What processors need to know besides the options.
struct ProcessorContext {
  int64_t prompt_length;  ///< tokens before the first new one
  int64_t max_length;
  torch::Tensor encoder_ids;  ///< (prompts, tokens): what was given to the model, also where that
                              ///< has no encoder
};

/// The processors `options` ask for, in transformers' order.
std::vector<LogitsProcessor> make_logits_processors(const GenerationOptions& options,
                                                    const ProcessorContext& context);

}  // namespace gradus
