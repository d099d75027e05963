#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/trackers/tensorboard.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "trackers/append_file.h"
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

class TensorBoardTracker : public Tracker {
 public:
  TensorBoardTracker(std::filesystem::path output_dir, std::optional<std::filesystem::path> log_dir)
      : output_dir_(std::move(output_dir)), log_dir_(std::move(log_dir)) {}
  ~TensorBoardTracker() override { TensorBoardTracker::finish(); }

  void begin(const nlohmann::json& args, const nlohmann::json& model_config) override {
    if (!open()) return;
    const double now = wall_time();
    std::string texts =
        event_proto::summary_entry(event_proto::text_value("args", dump_json(args, 2)));
    if (!model_config.is_null())
      texts += event_proto::summary_entry(
          event_proto::text_value("model_config", dump_json(model_config, 2)));
    write(event_proto::summary_event(now, 0, texts));
    if (args.is_object()) write_hyperparameters(args, now);
  }

  void log(const std::map<std::string, double>& values, int64_t step) override {
    if (!open()) return;
    const double now = wall_time();
    if (continues_) write(event_proto::restart_event(now, step));
    continues_ = false;
    std::string entries;
    for (const auto& [key, value] : values)
      entries +=
          event_proto::summary_entry(event_proto::scalar_value(dashboard_key(key), float(value)));
    write(event_proto::summary_event(now, step, entries));
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
    is_open_ = wrote_hyperparameters_ = false;
  }

 private:
  bool open() {
    if (is_open_ || failed_) return is_open_;
    if (!log_dir_) {
      const char* named = std::getenv("TENSORBOARD_LOGGING_DIR");
      log_dir_ = named != nullptr && *named != '\0' ? expand_user(named)
                                                    : output_dir_ / "runs" / tensorboard_run_name();
    }
    continues_ = holds_events(*log_dir_);
    static std::atomic<int> count{0};
    const auto seconds = std::to_string(int64_t(wall_time()));
    is_open_ = file_.open(*log_dir_ / ("events.out.tfevents." + seconds + "." + host_name() + "." +
                                       std::to_string(::getpid()) + "." + std::to_string(count++)));
    failed_ = !is_open_;
    if (is_open_) write(event_proto::version_event(wall_time()));
    return is_open_;
  }

  static bool holds_events(const std::filesystem::path& folder) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
      if (entry.path().filename().string().starts_with("events.out.tfevents.")) return true;
    return false;
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
  AppendFile file_;
  bool is_open_ = false, failed_ = false, continues_ = false, wrote_hyperparameters_ = false;
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
