#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/core/printable.h>
#include <gradus/trackers/openmetrics.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <mutex>

#include "trackers/text_server.h"
#include "trackers/tracked_run.h"

namespace gradus {
namespace {

constexpr int kDefaultPort = 9464;

/// A key as a part of a metric's name: "eval_f1@10" as "eval_f1_10".
std::string metric_name(const std::string& key) {
  std::string name = "gradus_";
  for (const char letter : key) {
    const bool fits = std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
    name += fits ? letter : '_';
  }
  return name;
}

std::string label_value(const std::string& text) {
  std::string quoted;
  for (const char letter : text) {
    if (letter == '\n') {
      quoted += "\\n";
      continue;
    }
    if (letter == '"' || letter == '\\') quoted += '\\';
    quoted += letter;
  }
  return quoted;
}

std::string metric_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return dump_json(nlohmann::json(value));
}

/// The port that the text names; says when it names none.
std::optional<int> port_in(const std::string& text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error == std::errc() && end == text.data() + text.size()) return port;
  log_warning(
      fmt::format("openmetrics: GRADUS_OPENMETRICS_PORT: expected a port from 0 to 65535, "
                  "received \"{}\"; {} is used",
                  printable(text), kDefaultPort));
  return std::nullopt;
}

class OpenMetricsTracker : public Tracker {
 public:
  explicit OpenMetricsTracker(int port) : port_(port) {}

  void begin(const nlohmann::json& args, const nlohmann::json&) override {
    if (args.is_object())
      for (const char* name : {"run_name", "output_dir"})
        if (const auto found = args.find(name); found != args.end() && found->is_string()) {
          const std::lock_guard lock(mutex_);
          run_ = found->get<std::string>();
          break;
        }
    open();
  }

  void log(const std::map<std::string, double>& values, int64_t step) override {
    open();
    const std::lock_guard lock(mutex_);
    for (const auto& [key, value] : values) values_[key] = value;
    step_ = step;
    time_ =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }

 private:
  void open() {
    if (std::exchange(is_open_, true)) return;
    try {
      server_ = std::make_unique<TextServer>(
          port_, "/metrics", "application/openmetrics-text; version=1.0.0; charset=utf-8",
          [this] { return text(); });
      log_info(fmt::format("metrics are at http://127.0.0.1:{}/metrics", server_->port()));
    } catch (const Error& error) {
      log_warning("openmetrics: " + error.message() + "; training continues without it");
    }
  }

  std::string text() {
    std::string text;
    const std::lock_guard lock(mutex_);
    auto values = values_;
    if (time_ > 0) {
      values["step"] = double(step_);
      values["log_time_seconds"] = time_;
    }
    std::map<std::string, std::string> families;  // samples by the metric's name
    for (const auto& [key, value] : values) {
      const auto name = metric_name(key);
      const auto label = name == "gradus_" + key ? "" : ",key=\"" + label_value(key) + "\"";
      families[name] += fmt::format("{}{{run=\"{}\"{}}} {}\n", name, label_value(run_), label,
                                    metric_number(value));
    }
    for (const auto& [name, samples] : families)
      text += fmt::format("# TYPE {} gauge\n{}", name, samples);
    return text + "# EOF\n";
  }

  const int port_;
  bool is_open_ = false;
  std::mutex mutex_;
  std::string run_;
  std::map<std::string, double> values_;
  int64_t step_ = 0;
  double time_ = 0;                     // of the last log, in seconds since 1970
  std::unique_ptr<TextServer> server_;  // last: its thread uses the others
};

}  // namespace

std::shared_ptr<Tracker> openmetrics_tracker(std::optional<int> port) {
  const auto named = tracked::environment("GRADUS_OPENMETRICS_PORT");
  if (!port && !named.empty()) port = port_in(named);
  return std::make_shared<OpenMetricsTracker>(port.value_or(kDefaultPort));
}

}  // namespace gradus
