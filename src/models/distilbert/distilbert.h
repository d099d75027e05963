#pragma once

#include <vector>

#include "models/builtin_models.h"

namespace gradus {

/// DistilBERT: BERT without token types and pooler, with all heads.
std::vector<BuiltinModel> distilbert_models();

}  // namespace gradus
