// log_metrics, save_metrics, and how numbers are printed.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/train/callbacks.h>
#include <gradus/version.h>

#include <cmath>

#include "train/metrics_report.h"
#include "train/trainer_parts.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

// Python's str() of a duration in seconds: 0:01:02.345678, cut to hundredths; "1 day, 2:03:04.56"
// from a day on.
std::string duration_text(double seconds) {
  const auto hundredths = int64_t(seconds * 100);
  const auto days = hundredths / 8640000;
  const auto before =
      days == 0 ? std::string() : fmt::format("{} day{}, ", days, days == 1 ? "" : "s");
  return fmt::format("{}{}:{:02}:{:02}.{:02}", before, hundredths / 360000 % 24,
                     hundredths / 6000 % 60, hundredths / 100 % 60, hundredths % 100);
}

// Metrics that count something and are integers in HF's files.
bool is_counted_metric(const std::string& key) {
  return key.ends_with("_samples") || key.ends_with("_samples_mm") || key.ends_with("_number") ||
         key.ends_with("_total") || key == "num_input_tokens_seen";
}

std::string metric_text(const std::string& key, double value) {
  if (key.find("_mem_") != std::string::npos) return fmt::format("{}MB", int64_t(value) >> 20);
  if (key.find("_runtime") != std::string::npos) return duration_text(value);
  if (key == "total_flos") return fmt::format("{}GF", int64_t(value) >> 30);
  if (value == std::floor(value) && is_counted_metric(key))
    return fmt::format("{}", int64_t(value));
  return json_number(std::round(value * 1e4) / 1e4);
}

// The order in which a log is printed: what is read first comes first.
int print_rank(const std::string& key) {
  static const Names kFirst = {"loss", "grad_norm", "learning_rate"};
  static const Names kLast = {"epoch", "num_input_tokens_seen"};
  for (size_t i = 0; i < kFirst.size(); ++i)
    if (key == kFirst[i]) return int(i) - 100;
  for (size_t i = 0; i < kLast.size(); ++i)
    if (key == kLast[i]) return int(i) + 100;
  return 0;
}

nlohmann::json metrics_json(const Metrics& metrics) {
  auto json = log_entry(metrics, 0);
  json.erase("step");
  for (auto& [key, value] : json.items())
    if (is_counted_metric(key) && value.is_number_float()) value = int64_t(value.get<double>());
  return json;
}

}  // namespace

std::string format_logs(const Logs& logs) {
  std::vector<std::pair<std::string, double>> items(logs.begin(), logs.end());
  std::erase_if(items, [](const auto& item) { return item.first == "total_flos"; });
  std::stable_sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
    return print_rank(a.first) < print_rank(b.first);
  });
  Names parts;
  for (const auto& [key, value] : items) parts.push_back(fmt::format("'{}': '{:.4g}'", key, value));
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

void show_metrics(const std::string& split, const Metrics& metrics) {
  size_t key_width = 0, value_width = 0;
  std::vector<std::pair<std::string, std::string>> rows;
  for (const auto& [key, value] : metrics) {
    rows.emplace_back(key, metric_text(key, value));
    key_width = std::max(key_width, key.size());
    value_width = std::max(value_width, rows.back().second.size());
  }
  std::string table = fmt::format("***** {} metrics *****\n", split);
  for (const auto& [key, text] : rows)
    table += fmt::format("  {:<{}} = {:>{}}\n", key, key_width, text, value_width);
  log_print(table);
}

void write_metrics(const fs::path& folder, const std::string& split, const Metrics& metrics,
                   bool combined) {
  make_directory(folder);
  const auto json = metrics_json(metrics);
  write_file_atomically(folder / (split + "_results.json"), dump_json(json, 4));
  if (!combined) return;
  const auto file = folder / "all_results.json";
  auto all = fs::exists(file) ? read_json(file) : nlohmann::json::object();
  all.update(json);
  write_file_atomically(file, dump_json(all, 4));
}

void Trainer::log_metrics(const std::string& split, const Metrics& metrics) const {
  if (is_world_process_zero()) show_metrics(split, metrics);
}

void Trainer::save_metrics(const std::string& split, const Metrics& metrics, bool combined) const {
  if (parts_->args.should_save()) write_metrics(*parts_->args.output_dir, split, metrics, combined);
}

}  // namespace gradus
