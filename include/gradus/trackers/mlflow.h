#pragma once

#include <gradus/trackers/tracker.h>

namespace gradus {

/// A tracker that writes runs of MLflow: arguments and model config as parameters, log entries as
/// metrics under the Trainer's own keys.
///
/// `uri` says where to, by default MLFLOW_TRACKING_URI of the environment:
///
///     sqlite:///mlflow.db         a database, the default; one that is not there is made, and
///     MLflow
///                                 brings it up to date when it first opens it
///     file:///data/mlruns         a folder, also as a plain path; the default where ./mlruns has
///     runs http://host:5000            a server, through libcurl
///
/// The other variables of transformers' MLflowCallback hold, too: MLFLOW_EXPERIMENT_NAME,
/// MLFLOW_RUN_ID, MLFLOW_TAGS, MLFLOW_FLATTEN_PARAMS, MLFLOW_MAX_LOG_PARAMS, and for a server
/// MLFLOW_TRACKING_TOKEN, MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD and
/// MLFLOW_TRACKING_INSECURE_TLS.
std::shared_ptr<Tracker> mlflow_tracker(std::string uri = {});

}  // namespace gradus
