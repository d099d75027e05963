#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/trackers/jsonl.h>
#include <gradus/trackers/tensorboard.h>
#include <gradus/trackers/tracker.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gradus {
namespace {

const std::vector<std::string> kOurs = {"tensorboard", "jsonl", "all", "none"};
const std::vector<std::string> kLater = {"azure_ml", "comet_ml",   "mlflow",  "neptune", "trackio",
                                         "wandb",    "codecarbon", "clearml", "dagshub", "flyte",
                                         "dvclive",  "swanlab",    "kubeflow"};

void check_name(const std::string& name) {
  if (std::find(kOurs.begin(), kOurs.end(), name) != kOurs.end()) return;
  if (std::find(kLater.begin(), kLater.end(), name) != kLater.end())
    throw Error("G-TRACK-1", ErrorKind::usage,
                "report_to: '" + name + "' of transformers is not available in gradus yet",
                "Use " + join_or(kOurs) + ".");
  const auto hint = did_you_mean(name, kOurs);
  throw Error("G-TRACK-1", ErrorKind::usage,
              "report_to: unknown tracker '" + name + "'; expected " + join_or(kOurs), hint);
}

}  // namespace

void Tracker::begin(const nlohmann::json&, const nlohmann::json&) {}

std::vector<std::shared_ptr<Tracker>> make_trackers(const std::vector<std::string>& report_to,
                                                    const std::filesystem::path& output_dir) {
  for (const auto& name : report_to) check_name(name);
  const auto wants = [&](const char* name) {
    return std::find(report_to.begin(), report_to.end(), name) != report_to.end();
  };
  std::vector<std::shared_ptr<Tracker>> trackers;
  if (wants("none")) return trackers;
  if (wants("tensorboard") || wants("all")) trackers.push_back(tensorboard_tracker(output_dir));
  if (wants("jsonl")) trackers.push_back(jsonl_logger(output_dir / "log.jsonl"));
  return trackers;
}

std::string dashboard_key(const std::string& key) {
  if (key.starts_with("eval_")) return "eval/" + key.substr(5);
  if (key.starts_with("test_")) return "test/" + key.substr(5);
  return "train/" + key;
}

}  // namespace gradus
