#pragma once

#include <vector>

#include "models/builtin_models.h"

namespace gradus {

/// ConvNeXt (model_type "convnext") for image classification.
std::vector<BuiltinModel> convnext_models();
/// What `--model_type` starts from.
std::vector<ModelDefaults> convnext_defaults();

}  // namespace gradus
