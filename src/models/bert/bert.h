#pragma once

#include <vector>

#include "models/builtin_models.h"

namespace gradus {

/// BERT (MiniLM is one) and RoBERTa, with all heads.
std::vector<BuiltinModel> bert_models();
/// What `--model_type` starts from.
std::vector<ModelDefaults> bert_defaults();

}  // namespace gradus
