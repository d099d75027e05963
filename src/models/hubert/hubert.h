#pragma once

#include <vector>

#include "models/builtin_models.h"

namespace gradus {

/// HuBERT: the body of wav2vec 2.0 with other details, for CTC and sequence classification.
std::vector<BuiltinModel> hubert_models();
/// What `--model_type` starts from.
std::vector<ModelDefaults> hubert_defaults();

}  // namespace gradus
