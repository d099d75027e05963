#pragma once

#include <vector>

#include "models/builtin_models.h"

namespace gradus {

/// ViT (model_type "vit") for image classification.
std::vector<BuiltinModel> vit_models();
/// What `--model_type` starts from.
std::vector<ModelDefaults> vit_defaults();

}  // namespace gradus
