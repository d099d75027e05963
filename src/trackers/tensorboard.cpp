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

#include "trackers/event_proto.h"
#include "trackers/tracker_file.h"

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

class TensorBoardTracker : public Tracker {
 public:
  TensorBoardTracker(std::filesystem::path output_dir, std::optional<std::filesystem::path> log_dir)
      : output_dir_(std::move(output_dir)), log_dir_(std::move(log_dir)) {}
  ~TensorBoardTracker() override { TensorBoardTracker::finish(); }

  void begin(const nlohmann::json& args, const nlohmann::json& model_config) override {
    if (!open() || std::exchange(is_described_, true)) return;
    const double now = wall_time();
    std::string texts =
        event_proto::summary_entry(event_proto::text_value("args", dump_json(args, 2)));
    if (!model_config.is_null())
      texts += event_proto::summary_entry(
          event_proto::text_value("model_config", dump_json(model_config, 2)));
    write(event_proto::summary_event(now, 0, texts));
    if (args.is_object()) write_hyperparameters(args, now);
  }

  void training_begins(int64_t step) override {
    if (!open()) return;
    // TensorBoard drops what it has from the step of this event on.
    if (continues_ || last_step_ > step) write(event_proto::restart_event(wall_time(), step + 1));
    continues_ = false;
    last_step_ = step;
  }

  void log(const std::map<std::string, double>& values, int64_t step) override {
    if (!open()) return;
    const double now = wall_time();
    last_step_ = std::max(last_step_, step);
    entries_.clear();
    for (const auto& [key, value] : values) {
      auto& tag = tags_[key];
      if (tag.empty()) tag = dashboard_key(key);
      event_proto::append_scalar(entries_, tag, float(value));
    }
    write(event_proto::summary_event(now, step, entries_));
  }

  bool takes_histograms() const override { return true; }
  void log_histogram(const std::string& name, const Histogram& histogram, int64_t step) override {
    if (!open()) return;
    write(event_proto::summary_event(
        wall_time(), step,
        event_proto::summary_entry(event_proto::histogram_value(name, histogram))));
  }

  void finish() override {
    if (!is_open_) return;
    if (wrote_hyperparameters_) {
      const auto end = Message().varint(1, /*STATUS_SUCCESS=*/1).fixed64(2, wall_time()).data();
      write(event_proto::summary_event(
          wall_time(), 0,
          event_proto::summary_entry(event_proto::plugin_value(
              "_hparams_/session_end_info", "hparams", hparams_content(4, end)))));
    }
    file_.close();
    is_open_ = false;
  }

 private:
  bool open() {
    if (is_open_ || failed_) return is_open_;
    if (!log_dir_) {
      const char* named = std::getenv("TENSORBOARD_LOGGING_DIR");
      log_dir_ = named != nullptr && *named != '\0' ? expand_user(named)
                                                    : output_dir_ / "runs" / tensorboard_run_name();
    }
    const bool is_new = path_.empty() || !std::filesystem::exists(path_);
    if (is_new) {
      const auto last = last_event_file(*log_dir_);
      continues_ = !last.empty();
      path_ = *log_dir_ / file_name_after(last);
      is_described_ = false;
    }
    is_open_ = file_.open(path_);
    failed_ = !is_open_;
    if (is_open_ && is_new) write(event_proto::version_event(wall_time()));
    return is_open_;
  }

  void write_hyperparameters(const nlohmann::json& args, double now) {
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
    write(event_proto::summary_event(
        now, 0,
        event_proto::summary_entry(event_proto::plugin_value(
            "_hparams_/experiment", "hparams", hparams_content(2, experiment.data()))) +
            event_proto::summary_entry(event_proto::plugin_value(
                "_hparams_/session_start_info", "hparams", hparams_content(3, start.data())))));
    wrote_hyperparameters_ = true;
  }

  void write(const std::string& event) { file_.append(event_proto::record(event)); }

  std::filesystem::path output_dir_;
  std::optional<std::filesystem::path> log_dir_;
  std::filesystem::path path_;  // of the file, once it was opened
  TrackerFile file_;
  std::string entries_;                      // of one summary
  std::map<std::string, std::string> tags_;  // by the Trainer's keys
  int64_t last_step_ = 0;
  bool is_open_ = false, failed_ = false;
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
  return std::make_shared<TensorBoardTracker>(output_dir, std::move(log_dir));
}

}  // namespace gradus
