#include <fmt/format.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/core/printable.h>
#include <gradus/trackers/wandb.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "trackers/background_tracker.h"
#include "trackers/event_proto.h"
#include "trackers/system_metrics.h"
#include "trackers/tracked_run.h"
#include "trackers/wandb_log.h"

namespace gradus {
namespace {

using event_proto::Message;

// Numbers of the fields of wandb_internal.proto.
enum WandbRecord {
  kHistory = 2,
  kSummary = 3,
  kConfig = 5,
  kFiles = 6,
  kStats = 7,
  kTelemetry = 11,
  kMetric = 12,
  kRun = 17,
  kExit = 18,
  kHeader = 21,
  kEnvironment = 26,
};

constexpr const char* kStepMetric = "train/global_step";
constexpr double kSecondsBetweenSamples = 15;

std::string timestamp_message(double seconds) {
  const auto whole = std::floor(seconds);
  return Message().varint(1, uint64_t(whole)).varint(2, uint64_t((seconds - whole) * 1e9)).data();
}

/// An item with a key: of a config, a summary, of statistics.
std::string keyed_item(const std::string& key, const std::string& json) {
  return Message().bytes(1, key).bytes(16, json).data();
}
/// An item whose key may have parts; a history has only such.
std::string nested_item(const std::string& key, const std::string& json) {
  return Message().bytes(2, key).bytes(16, json).data();
}

/// The code that transformers names.
std::string telemetry_message() {
  const auto label = Message().bytes(1, "transformers_trainer").data();
  return Message().bytes(9, label).bytes(13, "linux-x86_64").data();
}

class WandbWriter : public TrackerWriter {
 public:
  explicit WandbWriter(std::filesystem::path folder) : root_(std::move(folder)) {}

  void begin(const TrackedRun& run) override {
    if (id_.empty()) choose_run();
    make_directory(folder_ / "files");
    make_directory(folder_ / "logs");
    if (log_ == nullptr)
      log_ = std::make_unique<WandbLog>(folder_ / ("run-" + id_ + ".wandb"), size_without_end_);
    const auto config = tracked::config(run);
    std::string yaml = "wandb_version: 1\n";
    add_records([&] {
      if (size_without_end_ == 0) describe(run);
      Message update;
      for (const auto& [key, value] : config.items()) {
        update.bytes(1, keyed_item(key, dump_json(value)));
        yaml +=
            fmt::format("\n{}:\n  value: {}\n", dump_json(nlohmann::json(key)), dump_json(value));
      }
      record(kConfig, update.data());
    });
    size_without_end_ = log_->size();
    write_file_atomically(folder_ / "files" / "config.yaml", yaml);
  }

  void write(std::span<const TrackedEntry> entries) override {
    add_records([&] {
      for (const auto& entry : entries) add(entry);
      sample_system();
    });
  }

  void idle() override {
    if (log_ != nullptr && size_without_end_ > 0) add_records([&] { sample_system(); });
  }

  /// Ends the log. If the run goes on after that, with an evaluation after training, the end is
  /// taken out of the log again.
  void finish() override {
    if (log_ == nullptr) return;
    const auto runtime = uint64_t(now() - start_);
    add_records([&] { update_summary({{"_runtime", std::to_string(runtime)}}); });
    size_without_end_ = log_->size();
    add_records([&] { record(kExit, Message().varint(2, runtime).data()); });
    nlohmann::json summary = nlohmann::json::object();
    for (const auto& [key, json] : summary_) summary[key] = parse_json(json);
    write_file_atomically(folder_ / "files" / "wandb-summary.json", dump_json(summary));
    log_.reset();
  }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  void choose_run() {
    start_ = now();
    id_ = tracked::environment("WANDB_RUN_ID");
    if (id_.find_first_of("/\\#?%:") != std::string::npos || id_.starts_with('.')) {
      log_warning(
          fmt::format("wandb: WANDB_RUN_ID {} is not used: it begins with a dot or has one of "
                      "/\\#?%: in it",
                      printable(id_)));
      id_.clear();
    }
    if (id_.empty()) id_ = tracked::random_text(8, "0123456789abcdefghijklmnopqrstuvwxyz");
    if (root_.empty()) root_ = tracked::environment("WANDB_DIR");
    folder_ = root_ / "wandb" /
              fmt::format("offline-run-{}-{}", tracked::local_time(start_, "%Y%m%d_%H%M%S"), id_);
  }

  /// The records that come before everything else.
  void describe(const TrackedRun& run) {
    const auto version = Message().bytes(1, "0.31.0+gradus").bytes(2, "0.70.0").data();
    record(kHeader, Message().bytes(1, version).data());

    auto project = tracked::environment("WANDB_PROJECT");
    auto name = tracked::argument(run, "run_name");
    if (name.empty()) name = tracked::environment("WANDB_NAME");
    Message start;
    start.bytes(1, id_).bytes(3, project.empty() ? "huggingface" : project);
    const std::pair<int, std::string> named[] = {{2, tracked::environment("WANDB_ENTITY")},
                                                 {6, tracked::environment("WANDB_RUN_GROUP")},
                                                 {7, tracked::environment("WANDB_JOB_TYPE")},
                                                 {8, name},
                                                 {9, tracked::environment("WANDB_NOTES")}};
    for (const auto& [field, text] : named)
      if (!text.empty()) start.bytes(field, text);
    std::istringstream tags(tracked::environment("WANDB_TAGS"));
    for (std::string tag; std::getline(tags, tag, ',');)
      if (!tag.empty()) start.bytes(10, tag);
    start.bytes(13, tracked::host_name()).bytes(17, timestamp_message(start_));
    start.bytes(19, telemetry_message());
    record(kRun, start.data());

    const auto folder = std::filesystem::current_path().string();
    record(kEnvironment, Message()
                             .bytes(3, timestamp_message(start_))
                             .bytes(6, "gradus")
                             .bytes(11, folder)
                             .bytes(12, tracked::host_name())
                             .varint(16, uint64_t(::sysconf(_SC_NPROCESSORS_ONLN)))
                             .varint(17, uint64_t(::sysconf(_SC_NPROCESSORS_ONLN)))
                             .bytes(199, tracked::random_text(32))
                             .data());
    record(kTelemetry, telemetry_message());
    const auto defined = Message().varint(3, 1).data();
    const auto in_step = Message().varint(1, 1).varint(3, 1).data();
    record(kMetric, Message().bytes(1, kStepMetric).bytes(6, defined).data());
    record(kMetric, Message().bytes(2, "*").bytes(4, kStepMetric).bytes(6, in_step).data());
  }

  void add(const TrackedEntry& entry) {
    std::map<std::string, std::string> single, row;
    for (const auto& [key, value] : entry.values) {
      if (!entry.is_predict && tracked::is_single_value(key))
        single[key] = tracked::json_number(value);
      else
        row[dashboard_key(key)] = tracked::json_number(value);
    }
    if (!single.empty()) update_summary(single);
    if (!entry.is_predict) row[kStepMetric] = std::to_string(entry.step);
    row["_timestamp"] = tracked::json_number(entry.time);
    row["_runtime"] = tracked::json_number(std::max(0.0, entry.time - start_));
    row["_step"] = std::to_string(next_row_);
    update_summary(row);
    Message history;
    for (const auto& [key, json] : row) history.bytes(1, nested_item(key, json));
    history.bytes(2, Message().varint(1, uint64_t(next_row_)).data());
    record(kHistory, history.data());
    ++next_row_;
  }

  void update_summary(const std::map<std::string, std::string>& values) {
    Message update;
    for (const auto& [key, json] : values) {
      update.bytes(1, keyed_item(key, json));
      summary_[key] = json;
    }
    record(kSummary, update.data());
  }

  void sample_system() {
    const double time = now();
    if (time - last_sample_ < kSecondsBetweenSamples) return;
    last_sample_ = time;
    Message stats;
    stats.bytes(2, timestamp_message(time));
    for (const auto& [key, value] : system_.sample())
      stats.bytes(3, keyed_item(key, tracked::json_number(value)));
    record(kStats, stats.data());
  }

  /// Writes the records that `work` makes, or leaves everything as it was and throws.
  template <class Work>
  void add_records(Work work) {
    const auto records = records_, next_row = next_row_;
    const auto last_sample = last_sample_;
    try {
      work();
      log_->flush();
    } catch (...) {
      log_->discard();
      records_ = records;
      next_row_ = next_row;
      last_sample_ = last_sample;
      throw;
    }
  }

  void record(WandbRecord kind, const std::string& message) {
    log_->append(Message().varint(1, uint64_t(++records_)).bytes(kind, message).data());
  }

  std::filesystem::path root_, folder_;
  std::string id_;
  double start_ = 0, last_sample_ = 0;
  std::unique_ptr<WandbLog> log_;
  SystemMetrics system_;
  std::map<std::string, std::string> summary_;
  int64_t records_ = 0, next_row_ = 0;
  int64_t size_without_end_ = 0;  // of the log; 0 before the first records
};

}  // namespace

std::shared_ptr<Tracker> wandb_tracker(std::filesystem::path folder) {
  return in_background("wandb", std::make_unique<WandbWriter>(std::move(folder)));
}

}  // namespace gradus
