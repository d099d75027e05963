#pragma once

#include <vector>

#include "models/builtin_models.h"

namespace gradus {

/// GPT-2 (model_type "gpt2") and its heads.
std::vector<BuiltinModel> gpt2_models();
/// What `--model_type` starts from.
std::vector<ModelDefaults> gpt2_defaults();

}  // namespace gradus
