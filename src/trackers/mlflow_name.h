#pragma once

#include <string>

namespace gradus {

/// A metric's key as transformers gives it to MLflow: a character that MLflow does not take becomes
/// "_".
std::string mlflow_metric_name(const std::string& key);

/// Why MLflow would refuse a metric, a parameter or a tag of this name; empty when it takes it. A
/// name is a path in MLflow's folders, which may not lead out of them.
std::string mlflow_objection(const std::string& name);

}  // namespace gradus
