#pragma once

#include <vector>

#include "models/builtin_models.h"

namespace gradus {

/// DistilBERT: BERT without token types and pooler, with all heads.
std::vector<BuiltinModel> distilbert_models();
/// What `--model_type` starts from.
std::vector<ModelDefaults> distilbert_defaults();

}  // namespace gradus
