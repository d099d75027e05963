#pragma once

#include <vector>

#include "models/builtin_models.h"

namespace gradus {

/// Llama 2 and 3 ("llama"), Mistral ("mistral"), Qwen2 and 2.5 ("qwen2"), Qwen3 ("qwen3"): one
/// implementation.
std::vector<BuiltinModel> llama_models();
/// What `--model_type` starts from.
std::vector<ModelDefaults> llama_defaults();

}  // namespace gradus
