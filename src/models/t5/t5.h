#pragma once

#include <vector>

#include "models/builtin_models.h"

namespace gradus {

/// T5 and its gated variants (v1.1, Flan, mT5): language model, classifiers, question answering,
/// encoder alone.
std::vector<BuiltinModel> t5_models();
/// What `--model_type` starts from.
std::vector<ModelDefaults> t5_defaults();

}  // namespace gradus
