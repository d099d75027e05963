#pragma once

#include <vector>

#include "models/builtin_models.h"

namespace gradus {

/// ResNet (model_type "resnet") for image classification.
std::vector<BuiltinModel> resnet_models();
/// What `--model_type` starts from.
std::vector<ModelDefaults> resnet_defaults();

}  // namespace gradus
