#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/core/printable.h>
#include <gradus/trackers/mlflow.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "trackers/background_tracker.h"
#include "trackers/mlflow_name.h"
#include "trackers/mlflow_store.h"
#include "trackers/tracked_run.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestParameter = 6000;  // MLflow's limit

/// A text as Python's `repr` writes it.
std::string python_quoted(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string quoted(1, quote);
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == quote || letter == '\\')
      quoted += std::string("\\") + letter;
    else if (letter == '\n' || letter == '\r' || letter == '\t')
      quoted += letter == '\n' ? "\\n" : letter == '\r' ? "\\r" : "\\t";
    else if (byte < 0x20 || byte == 0x7f)
      quoted += fmt::format("\\x{:02x}", byte);
    else
      quoted += letter;
  }
  return quoted + quote;
}

/// A value as Python's `str` writes it; inside of lists and objects as `repr` does.
std::string python_text(const nlohmann::json& value, bool is_inner = false) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string())
    return is_inner ? python_quoted(value.get<std::string>()) : value.get<std::string>();
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    return fmt::format("{}", value.get<double>());
  if (!value.is_structured()) return dump_json(value);
  std::string text;
  for (const auto& [key, item] : value.items())
    text += (text.empty() ? "" : ", ") + (value.is_object() ? python_quoted(key) + ": " : "") +
            python_text(item, true);
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

/// {"a": {"b": 1}} as {"a.b": 1}.
void flatten_parameters(const nlohmann::json& from, const std::string& prefix,
                        nlohmann::json& into) {
  for (const auto& [key, value] : from.items()) {
    if (value.is_object() && !value.empty())
      flatten_parameters(value, prefix + key + ".", into);
    else
      into[prefix + key] = value;
  }
}

MlflowParameters mlflow_parameters(TrackedRun run) {
  run.parameters.reset();  // transformers tells MLflow only arguments and config
  auto all = tracked::config(run);
  if (tracked::environment_says_yes("MLFLOW_FLATTEN_PARAMS")) {
    auto flat = nlohmann::json::object();
    flatten_parameters(all, "", flat);
    all = std::move(flat);
  }
  MlflowParameters parameters;
  for (const auto& [key, value] : all.items()) {
    auto text = python_text(value);
    const auto length = tracked::characters(text).size();
    if (const auto objection = mlflow_objection(key); !objection.empty())
      log_warning(
          fmt::format("mlflow: the parameter '{}' is left out: {}", printable(key), objection));
    else if (length > kLongestParameter)
      log_warning(
          fmt::format("mlflow: the parameter {} is left out: its {} characters are more "
                      "than MLflow's {}. MLFLOW_FLATTEN_PARAMS=1 splits parameters.",
                      key, length, kLongestParameter));
    else
      parameters.emplace_back(key, std::move(text));
  }
  const auto text = tracked::environment("MLFLOW_MAX_LOG_PARAMS");
  size_t most = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), most);
  if (error == std::errc() && end == text.data() + text.size())
    parameters.resize(std::min(parameters.size(), most));
  return parameters;
}

/// Those of MLFLOW_TAGS. One that cannot be read costs the tags, not the run.
std::map<std::string, std::string> mlflow_tags() {
  std::map<std::string, std::string> tags;
  const auto text = tracked::environment("MLFLOW_TAGS");
  if (text.empty()) return tags;
  try {
    const auto given = parse_json(text, "MLFLOW_TAGS");
    if (!given.is_object())
      throw Error("G-TRACK-2", ErrorKind::usage, "MLFLOW_TAGS is no object of names and values");
    for (const auto& [key, value] : given.items())
      if (mlflow_objection(key).empty()) tags[key] = python_text(value);
  } catch (const Error& error) {
    log_warning("mlflow: " + error.message() + "; the tags are left out");
  }
  return tags;
}

/// Whether the folder has runs, of which MLflow goes on writing there.
bool has_experiments(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos &&
        fs::exists(entry.path() / "meta.yaml", ignored))
      return true;
  }
  return false;
}

std::unique_ptr<MlflowStore> open_mlflow_store(const std::string& uri) {
  if (uri.starts_with("http://") || uri.starts_with("https://")) return mlflow_server(uri);
  if (uri.starts_with("sqlite:///"))
    return mlflow_database(uri.substr(10), fs::absolute("mlruns").lexically_normal());
  if (uri.starts_with("file://")) return mlflow_folder(uri.substr(7));
  if (uri.find(':') == std::string::npos) return mlflow_folder(expand_user(uri));
  throw Error("G-TRACK-2", ErrorKind::usage,
              "MLFLOW_TRACKING_URI: " + uri + " is not a place that gradus can write to",
              "It writes to sqlite:///FILE, file:///FOLDER, http://HOST:PORT and https://HOST.");
}

class MlflowWriter : public TrackerWriter {
 public:
  explicit MlflowWriter(std::string uri) : uri_(std::move(uri)) {}

  void begin(const TrackedRun& run) override {
    if (store_ == nullptr) store_ = open_mlflow_store(uri_);
    if (run_id_.empty()) run_id_ = tracked::environment("MLFLOW_RUN_ID");
    if (run_id_.empty()) {
      auto name = tracked::argument(run, "run_name");
      if (name.empty()) name = tracked::random_run_name();
      const auto user = tracked::user_name();
      run_id_ = store_->create_run({.experiment = tracked::environment("MLFLOW_EXPERIMENT_NAME"),
                                    .name = name,
                                    .user = user,
                                    .start_time = now(),
                                    .tags = {{"mlflow.user", user},
                                             {"mlflow.source.name", "gradus"},
                                             {"mlflow.source.type", "LOCAL"},
                                             {"mlflow.runName", name}}});
    }
    if (is_described_) return;
    store_->describe_run(run_id_, mlflow_parameters(run), mlflow_tags());
    is_described_ = true;
  }

  void write(std::span<const TrackedEntry> entries) override {
    std::vector<MlflowMetric> metrics;
    for (const auto& entry : entries) {
      if (entry.is_predict) continue;
      for (const auto& [key, value] : entry.values)
        if (const auto& name = name_of(key); !name.empty())
          metrics.push_back({name, value, int64_t(entry.time * 1000), entry.step});
    }
    store_->log_metrics(run_id_, metrics);
  }

  void finish() override {
    if (store_ == nullptr) return;
    store_->end_run(run_id_, now());
    store_.reset();
  }

 private:
  /// The key's name in MLflow; empty, with a warning, where MLflow would refuse it: it would refuse
  /// the other metrics of the request, too.
  const std::string& name_of(const std::string& key) {
    const auto [found, is_new] = names_.try_emplace(key);
    if (!is_new) return found->second;
    found->second = mlflow_metric_name(key);
    if (const auto objection = mlflow_objection(found->second); !objection.empty()) {
      log_warning(
          fmt::format("mlflow: the metric '{}' is left out: {}", printable(key), objection));
      found->second.clear();
    }
    return found->second;
  }

  static int64_t now() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  std::string uri_;
  std::unique_ptr<MlflowStore> store_;
  std::string run_id_;
  std::map<std::string, std::string> names_;  // of metrics, by the Trainer's keys
  bool is_described_ = false;
};

}  // namespace

std::shared_ptr<Tracker> mlflow_tracker(std::string uri) {
  if (uri.empty()) uri = tracked::environment("MLFLOW_TRACKING_URI");
  if (uri.empty()) uri = has_experiments("mlruns") ? "./mlruns" : "sqlite:///mlflow.db";
  return in_background("mlflow", std::make_unique<MlflowWriter>(std::move(uri)));
}

}  // namespace gradus
