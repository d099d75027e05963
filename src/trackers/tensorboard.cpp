#include <fmt/format.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/trackers/tensorboard.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "core/append_file.h"
#include "trackers/background_tracker.h"
#include "trackers/event_proto.h"

namespace gradus {
namespace {

using event_proto::Message;

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

std::string hparams_content(int field, const std::string& message) {
  return Message().bytes(field, message).data();
}

/// `google.protobuf.Value`, and the data type of the hparams plugin; lists, objects and null are
/// left out.
struct Hyperparameter {
  std::string value;
  uint64_t type;
};

std::optional<Hyperparameter> hyperparameter(const nlohmann::json& value) {
  if (value.is_boolean())
    return Hyperparameter{Message().varint(4, value.get<bool>() ? 1 : 0).data(), 2};
  if (value.is_number()) return Hyperparameter{Message().fixed64(2, value.get<double>()).data(), 3};
  if (value.is_string())
    return Hyperparameter{Message().bytes(3, value.get_ref<const std::string&>()).data(), 1};
  return std::nullopt;
}

constexpr std::string_view kFilePrefix = "events.out.tfevents.";

/// The name of the event file that TensorBoard reads last; empty where there is none.
std::string last_event_file(const std::filesystem::path& folder) {
  std::string last;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with(kFilePrefix)) last = std::max(last, name);
  }
  return last;
}

/// A name for an event file that sorts after `last`, also when both are made in one second.
std::string file_name_after(const std::string& last) {
  static std::atomic<int> count{0};
  const auto name = [rest = fmt::format(".{}.{}.{}", host_name(), ::getpid(), count++)](
                        int64_t at) { return fmt::format("{}{}{}", kFilePrefix, at, rest); };
  const auto now = int64_t(wall_time());
  if (name(now) > last) return name(now);
  return name(std::atoll(last.c_str() + kFilePrefix.size()) + 1);
}

class TensorBoardWriter : public TrackerWriter {
 public:
  TensorBoardWriter(std::filesystem::path output_dir, std::optional<std::filesystem::path> log_dir)
      : output_dir_(std::move(output_dir)), log_dir_(std::move(log_dir)) {}

  void begin(const TrackedRun& run) override {
    choose_file();
    if (is_described_) return append("");
    const double now = wall_time();
    std::string texts;
    if (!run.args.is_null())
      texts += event_proto::summary_entry(event_proto::text_value("args", dump_json(run.args, 2)));
    if (!run.model_config.is_null())
      texts += event_proto::summary_entry(
          event_proto::text_value("model_config", dump_json(run.model_config, 2)));
    std::string events;
    if (!texts.empty()) events += summary(now, 0, texts);
    const bool has_hyperparameters = run.args.is_object();
    if (has_hyperparameters) events += hyperparameters(run.args, now);
    append(events);
    is_described_ = !texts.empty();
    wrote_hyperparameters_ |= has_hyperparameters;
  }

  void training_begins(int64_t step) override {
    // TensorBoard drops what it has from the step of this event on.
    if (continues_ || last_step_ > step)
      append(event_proto::record(event_proto::restart_event(wall_time(), step + 1)));
    continues_ = false;
    last_step_ = step;
  }

  void write(std::span<const TrackedEntry> entries) override {
    std::string events;
    auto last_step = last_step_;
    for (const auto& entry : entries) {
      if (entry.is_predict) continue;
      last_step = std::max(last_step, entry.step);
      values_.clear();
      for (const auto& [key, value] : entry.values) {
        auto& tag = tags_[key];
        if (tag.empty()) tag = dashboard_key(key);
        event_proto::append_scalar(values_, tag, float(value));
      }
      events += summary(entry.time, entry.step, values_);
    }
    append(events);
    last_step_ = last_step;
  }

  bool takes_histograms() const override { return true; }
  void write_histogram(const TrackedHistogram& entry) override {
    append(summary(
        entry.time, entry.step,
        event_proto::summary_entry(event_proto::histogram_value(entry.name, entry.histogram))));
  }

  void finish() override {
    if (wrote_hyperparameters_) {
      const double now = wall_time();
      const auto end = Message().varint(1, /*STATUS_SUCCESS=*/1).fixed64(2, now).data();
      append(summary(now, 0,
                     event_proto::summary_entry(event_proto::plugin_value(
                         "_hparams_/session_end_info", "hparams", hparams_content(4, end)))));
    }
    file_.reset();
  }

 private:
  static std::string summary(double time, int64_t step, const std::string& values) {
    return event_proto::record(event_proto::summary_event(time, step, values));
  }

  void choose_file() {
    if (!log_dir_) {
      const char* named = std::getenv("TENSORBOARD_LOGGING_DIR");
      log_dir_ = named != nullptr && *named != '\0' ? expand_user(named)
                                                    : output_dir_ / "runs" / tensorboard_run_name();
    }
    if (!path_.empty() && (size_ == 0 || std::filesystem::exists(path_))) return;
    const auto last = last_event_file(*log_dir_);
    continues_ = !last.empty();
    path_ = *log_dir_ / file_name_after(last);
    file_.reset();
    size_ = 0;
    is_described_ = wrote_hyperparameters_ = false;
  }

  static std::string hyperparameters(const nlohmann::json& args, double now) {
    Message start, experiment;
    for (const auto& [name, value] : args.items()) {
      const auto parameter = hyperparameter(value);
      if (!parameter) continue;
      start.bytes(1, Message().bytes(1, name).bytes(2, parameter->value).data());
      experiment.bytes(4, Message().bytes(1, name).varint(4, parameter->type).data());
    }
    for (const char* metric : {"train/loss", "eval/loss"})
      experiment.bytes(5, Message().bytes(1, Message().bytes(2, metric).data()).data());
    start.fixed64(5, now);
    return summary(
        now, 0,
        event_proto::summary_entry(event_proto::plugin_value(
            "_hparams_/experiment", "hparams", hparams_content(2, experiment.data()))) +
            event_proto::summary_entry(event_proto::plugin_value(
                "_hparams_/session_start_info", "hparams", hparams_content(3, start.data()))));
  }

  /// Adds events to the file, after its version where it is new. What a failure leaves of them is
  /// cut off by the next attempt.
  void append(const std::string& events) {
    try {
      if (file_ == nullptr) {
        make_directory(path_.parent_path());
        file_ = std::make_unique<AppendFile>(path_, size_);
      }
      const auto version =
          size_ == 0 ? event_proto::record(event_proto::version_event(wall_time())) : "";
      file_->append(version + events);
      file_->flush();
      size_ += int64_t(version.size() + events.size());
    } catch (...) {
      file_.reset();
      throw;
    }
  }

  std::filesystem::path output_dir_;
  std::optional<std::filesystem::path> log_dir_;
  std::filesystem::path path_;  // of the file, once it was chosen
  std::unique_ptr<AppendFile> file_;
  int64_t size_ = 0;                         // of what is whole
  std::string values_;                       // of one summary
  std::map<std::string, std::string> tags_;  // by the Trainer's keys
  int64_t last_step_ = 0;
  bool continues_ = false;     // the folder has events of an earlier process
  bool is_described_ = false;  // arguments and config are in the file
  bool wrote_hyperparameters_ = false;
};

}  // namespace

std::string tensorboard_run_name() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char date[32];
  std::strftime(date, sizeof date, "%b%d_%H-%M-%S", &local);
  return std::string(date) + "_" + host_name();
}

std::shared_ptr<Tracker> tensorboard_tracker(const std::filesystem::path& output_dir,
                                             std::optional<std::filesystem::path> log_dir) {
  return in_background("tensorboard",
                       std::make_unique<TensorBoardWriter>(output_dir, std::move(log_dir)));
}

}  // namespace gradus
