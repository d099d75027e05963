#pragma once

#include <vector>

#include "models/builtin_models.h"

namespace gradus {

/// BigBird: BERT for long texts, with block-sparse attention.
std::vector<BuiltinModel> bigbird_models();
/// What `--model_type` starts from.
std::vector<ModelDefaults> bigbird_defaults();

}  // namespace gradus
