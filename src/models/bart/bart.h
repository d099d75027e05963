#pragma once

#include <vector>

#include "models/builtin_models.h"

namespace gradus {

/// BART and mBART: language model, sequence classification, question answering, the decoder alone.
std::vector<BuiltinModel> bart_models();
/// What `--model_type` starts from.
std::vector<ModelDefaults> bart_defaults();

}  // namespace gradus
