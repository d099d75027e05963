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

/// Every architecture of the library; builtin_models.cpp has one line for each folder.
std::vector<BuiltinModel> builtin_models();

}  // namespace gradus
