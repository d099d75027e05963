#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/trackers/csv.h>
#include <gradus/trackers/jsonl.h>
#include <gradus/trackers/mlflow.h>
#include <gradus/trackers/openmetrics.h>
#include <gradus/trackers/tensorboard.h>
#include <gradus/trackers/tracker.h>
#include <gradus/trackers/trackio.h>
#include <gradus/trackers/wandb.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/registry.h"
#include "trackers/http_request.h"
#include "trackers/tracked_run.h"

namespace gradus {
namespace {

struct TrackerEntry {
  std::string name;
  TrackerMaker make = nullptr;
  /// Whether "all" includes it here.
  std::function<bool()> is_usable = [] { return true; };
};

bool is_mlflow_usable() {
  const auto uri = tracked::environment("MLFLOW_TRACKING_URI");
  return !tracked::environment_says_yes("DISABLE_MLFLOW_INTEGRATION") &&
         (!uri.starts_with("http") || can_send_requests());
}

bool is_wandb_usable() {
  return !tracked::environment_says_yes("WANDB_DISABLED") &&
         tracked::environment("WANDB_MODE") != "disabled";
}

// Ours, then the names of transformers that are not there yet.
std::vector<TrackerEntry> builtin_trackers() {
  return {
      {"jsonl", [](const auto& output_dir) { return jsonl_logger(output_dir / "log.jsonl"); }},
      {"tensorboard", [](const auto& output_dir) { return tensorboard_tracker(output_dir); }},
      {"csv", [](const auto& output_dir) { return csv_tracker(output_dir / "log.csv"); }},
      {"mlflow", [](const auto&) { return mlflow_tracker(); }, is_mlflow_usable},
      {"openmetrics", [](const auto&) { return openmetrics_tracker(); }},
      {"trackio", [](const auto&) { return trackio_tracker(); }},
      {"wandb", [](const auto&) { return wandb_tracker(); }, is_wandb_usable},
      {"azure_ml"},
      {"clearml"},
      {"codecarbon"},
      {"comet_ml"},
      {"dagshub"},
      {"dvclive"},
      {"flyte"},
      {"kubeflow"},
      {"neptune"},
      {"swanlab"},
  };
}

Registry<TrackerEntry>& trackers() {
  static Registry<TrackerEntry> table("register_tracker", builtin_trackers());
  return table;
}

TrackerEntry checked_tracker(const std::string& name) {
  auto entry = trackers().find(name);
  if (entry && entry->make) return std::move(*entry);
  const auto known = tracker_choices();
  if (entry)
    throw Error("G-TRACK-1", ErrorKind::usage,
                "report_to: gradus does not report to " + name + " yet",
                "It has " + join_or(known) + "; register_tracker adds one of your own.");
  throw Error("G-TRACK-1", ErrorKind::usage,
              "report_to: must be " + join_or(known) + ", received \"" + name + "\"",
              did_you_mean(name, known));
}

}  // namespace

void Tracker::begin(const nlohmann::json&, const nlohmann::json&) {}
void Tracker::training_begins(int64_t) {}

void register_tracker(const std::string& name, TrackerMaker make) {
  if (name == "all" || name == "none") throw_registered_twice("register_tracker", name);
  trackers().add({name, std::move(make)});
}

std::vector<std::string> tracker_names() { return trackers().names(); }
std::vector<std::string> missing_tracker_names() { return trackers().missing_names(); }

std::vector<std::string> tracker_choices() {
  std::vector<std::string> choices = {"all", "none"};
  for (auto& name : trackers().names()) choices.push_back(std::move(name));
  return choices;
}

std::vector<std::string> resolve_tracker_names(const std::vector<std::string>& report_to) {
  if (report_to == std::vector<std::string>{"all"}) {
    auto names = trackers().names();
    std::erase_if(names, [](const auto& name) { return !trackers().find(name)->is_usable(); });
    return names;
  }
  if (report_to == std::vector<std::string>{"none"}) return {};
  for (const auto& name : report_to) checked_tracker(name);
  return report_to;
}

std::shared_ptr<Tracker> make_tracker(const std::string& name,
                                      const std::filesystem::path& output_dir) {
  return checked_tracker(name).make(output_dir);
}

std::vector<std::shared_ptr<Tracker>> make_trackers(const std::vector<std::string>& report_to,
                                                    const std::filesystem::path& output_dir) {
  std::vector<std::shared_ptr<Tracker>> made;
  for (const auto& name : resolve_tracker_names(report_to))
    made.push_back(make_tracker(name, output_dir));
  return made;
}

std::string dashboard_key(const std::string& key) {
  if (key.starts_with("eval_")) return "eval/" + key.substr(5);
  if (key.starts_with("test_")) return "test/" + key.substr(5);
  return "train/" + key;
}

}  // namespace gradus
