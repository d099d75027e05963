#pragma once

#include <gradus/models/generation_config.h>

#include <functional>
#include <vector>

namespace gradus {

/// (ids (rows, tokens), scores (rows, vocabulary)) -> scores
using LogitsProcessor = std::function<torch::Tensor(const torch::Tensor& ids, torch::Tensor scores)>;

/// The processors `options` ask for, in transformers' order. `prompt_length` counts the tokens before the first new one.
std::vector<LogitsProcessor> make_logits_processors(const GenerationOptions& options, int64_t prompt_length, int64_t max_length);

}  // namespace gradus
