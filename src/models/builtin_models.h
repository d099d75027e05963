#pragma once

#include <gradus/models/auto_model.h>

#include <string>
#include <vector>

namespace gradus {

struct BuiltinModel {
  std::string model_type;
  ModelTask task;
  ModelFactory factory;
};

/// Every head of every architecture; builtin_models.cpp has one row for each folder.
std::vector<BuiltinModel> builtin_models();
/// The default configuration of every model type.
std::vector<ModelDefaults> builtin_defaults();

}  // namespace gradus
