#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trackers/http_request.h"
#include "trackers/mlflow_store.h"
#include "trackers/tracked_run.h"

namespace gradus {
namespace {

// What a request may hold at most, by MLflow's rules.
constexpr size_t kMetricsPerRequest = 1000;
constexpr size_t kParametersPerRequest = 100;

nlohmann::json mlflow_pairs(std::span<const std::pair<std::string, std::string>> pairs) {
  auto list = nlohmann::json::array();
  for (const auto& [key, value] : pairs) list.push_back({{"key", key}, {"value", value}});
  return list;
}

/// Numbers that JSON does not have are texts in protocol buffers' JSON.
nlohmann::json mlflow_json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

/// The server does not take the content of a request.
struct RefusedRequest : Error {
  using Error::Error;
};

class MlflowServer : public MlflowStore {
 public:
  explicit MlflowServer(const std::string& uri) {
    base_.url = uri.substr(0, uri.find_last_not_of('/') + 1) + "/api/2.0/mlflow/";
    base_.headers = {"Content-Type: application/json"};
    const auto token = tracked::environment("MLFLOW_TRACKING_TOKEN");
    const auto user = tracked::environment("MLFLOW_TRACKING_USERNAME");
    if (!user.empty())
      base_.user = user + ":" + tracked::environment("MLFLOW_TRACKING_PASSWORD");
    else if (!token.empty())
      base_.headers.push_back("Authorization: Bearer " + token);
    base_.check_certificate = !tracked::environment_says_yes("MLFLOW_TRACKING_INSECURE_TLS");
  }

  std::string create_run(const MlflowRun& run) override {
    const std::vector<std::pair<std::string, std::string>> tags(run.tags.begin(), run.tags.end());
    const auto answer = post("runs/create", {{"experiment_id", find_experiment(run.experiment)},
                                             {"user_id", run.user},
                                             {"run_name", run.name},
                                             {"start_time", run.start_time},
                                             {"tags", mlflow_pairs(tags)}});
    return answer.at("run").at("info").at("run_id").get<std::string>();
  }

  void describe_run(const std::string& run_id, const MlflowParameters& parameters,
                    const std::map<std::string, std::string>& tags) override {
    for (size_t at = 0; at < parameters.size(); at += kParametersPerRequest) {
      const auto part = std::span(parameters)
                            .subspan(at, std::min(kParametersPerRequest, parameters.size() - at));
      log_batch({{"run_id", run_id}, {"params", mlflow_pairs(part)}});
    }
    const std::vector<std::pair<std::string, std::string>> pairs(tags.begin(), tags.end());
    if (!pairs.empty()) log_batch({{"run_id", run_id}, {"tags", mlflow_pairs(pairs)}});
  }

  void log_metrics(const std::string& run_id, std::span<const MlflowMetric> metrics) override {
    for (size_t at = 0; at < metrics.size(); at += kMetricsPerRequest) {
      auto list = nlohmann::json::array();
      for (const auto& metric :
           metrics.subspan(at, std::min(kMetricsPerRequest, metrics.size() - at)))
        list.push_back({{"key", metric.key},
                        {"value", mlflow_json_number(metric.value)},
                        {"timestamp", metric.time},
                        {"step", metric.step}});
      log_batch({{"run_id", run_id}, {"metrics", std::move(list)}});
    }
  }

  void end_run(const std::string& run_id, int64_t end_time) override {
    post("runs/update", {{"run_id", run_id}, {"status", "FINISHED"}, {"end_time", end_time}});
  }

 private:
  std::string find_experiment(const std::string& name) {
    if (name.empty()) return "0";
    auto request = base_;
    request.url += "experiments/get-by-name?experiment_name=" + url_encoded(name);
    const auto answer = send_request(request);
    if (answer.status == 404)
      return post("experiments/create", {{"name", name}}).at("experiment_id").get<std::string>();
    check(request.url, answer);
    return parse_json(answer.body, request.url)
        .at("experiment")
        .at("experiment_id")
        .get<std::string>();
  }

  /// What a server refuses as it is (one of an older version takes shorter parameters) is left out:
  /// it would be refused again, and everything after it would wait.
  void log_batch(const nlohmann::json& content) {
    try {
      post("runs/log-batch", content);
    } catch (const RefusedRequest& refused) {
      if (!std::exchange(has_warned_, true))
        log_warning("mlflow: the server refuses values, which are left out: " + refused.message());
    }
  }

  nlohmann::json post(const std::string& call, const nlohmann::json& content) {
    auto request = base_;
    request.url += call;
    request.body = content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const auto answer = send_request(request);
    check(request.url, answer);
    return parse_json(answer.body.empty() ? "{}" : answer.body, request.url);
  }

  static void check(const std::string& url, const HttpAnswer& answer) {
    if (answer.status < 400) return;
    const auto what =
        fmt::format("{} answers {}: {}", url, answer.status, answer.body.substr(0, 300));
    if (answer.status == 400) throw RefusedRequest("G-TRACK-2", ErrorKind::io, what);
    throw Error("G-TRACK-2", ErrorKind::io, what);
  }

  HttpRequest base_;
  bool has_warned_ = false;
};

}  // namespace

std::unique_ptr<MlflowStore> mlflow_server(const std::string& uri) {
  return std::make_unique<MlflowServer>(uri);
}

}  // namespace gradus
