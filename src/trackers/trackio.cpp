#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/trackers/trackio.h>

#include <cmath>

#include "trackers/background_tracker.h"
#include "trackers/sqlite_database.h"
#include "trackers/tracked_run.h"

namespace gradus {
namespace {

std::filesystem::path trackio_folder() {
  if (const auto named = tracked::environment("TRACKIO_DIR"); !named.empty()) return named;
  if (const auto home = tracked::environment("HF_HOME"); !home.empty())
    return expand_user(home) / "trackio";
  const auto cache = tracked::environment("XDG_CACHE_HOME");
  return expand_user(cache.empty() ? "~/.cache" : cache) / "huggingface" / "trackio";
}

/// The name of a project's file: its letters and digits of any alphabet, "-" and "_".
std::string project_file_name(const std::string& project) {
  std::string name;
  for (size_t at = 0; at < project.size();) {
    const auto begin = at++;
    while (at < project.size() && (project[at] & 0xc0) == 0x80) ++at;
    const auto bytes = project.substr(begin, at - begin);
    const auto character = tracked::characters(bytes);
    if (character.size() == 1 &&
        (tracked::is_letter_or_digit(character[0]) || bytes == "-" || bytes == "_"))
      name += bytes;
  }
  return (name.empty() ? "default" : name) + ".db";
}

/// trackio keeps numbers that JSON does not have as texts.
nlohmann::json trackio_value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

nlohmann::json trackio_values(nlohmann::json values) {
  if (values.is_number_float()) return trackio_value(values.get<double>());
  if (values.is_structured())
    for (auto& value : values) value = trackio_values(std::move(value));
  return values;
}

/// As text; bytes that are no UTF-8, of the name of a file say, are replaced.
std::string trackio_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The tables that a run fills. trackio itself adds the others when it opens the file.
constexpr const char* kTrackioTables[] = {
    "CREATE TABLE IF NOT EXISTS metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT "
    "NULL, timestamp TEXT NOT NULL, run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT "
    "NOT NULL, log_id TEXT, space_id TEXT)",
    "CREATE TABLE IF NOT EXISTS configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT "
    "NULL, run_name TEXT NOT NULL, config TEXT NOT NULL, created_at TEXT NOT NULL, "
    "UNIQUE(run_id))",
    "CREATE TABLE IF NOT EXISTS system_metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT "
    "NOT NULL, timestamp TEXT NOT NULL, run_name TEXT NOT NULL, metrics TEXT NOT NULL, log_id "
    "TEXT, space_id TEXT)",
};

class TrackioWriter : public TrackerWriter {
 public:
  explicit TrackioWriter(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void begin(const TrackedRun& run) override {
    auto project = tracked::argument(run, "project");
    if (project.empty()) project = "huggingface";
    if (folder_.empty()) folder_ = trackio_folder();
    database_ = std::make_unique<SqliteDatabase>(folder_ / project_file_name(project));
    database_->run("PRAGMA journal_mode = WAL");
    database_->run("PRAGMA synchronous = NORMAL");
    database_->transaction([&] {
      for (const auto* table : kTrackioTables) database_->run(table);
      if (run_id_.empty()) choose_run(tracked::argument(run, "run_name"));
      auto config = trackio_values(tracked::config(run));
      config["_Username"] = nullptr;
      config["_Created"] = tracked::iso_time(now());
      config["_Group"] = nullptr;
      database_->insert("configs",
                        {{"run_id", run_id_},
                         {"run_name", run_name_},
                         {"config", trackio_text(config)},
                         {"created_at", tracked::iso_time(now())}},
                        "INSERT OR REPLACE");
    });
  }

  void write(std::span<const TrackedEntry> entries) override {
    int64_t step = next_step_;
    database_->transaction([&] {
      for (const auto& entry : entries) {
        auto metrics = nlohmann::json::object();
        for (const auto& [key, value] : entry.values)
          if (entry.is_predict || !tracked::is_single_value(key))
            metrics[dashboard_key(key)] = trackio_value(value);
        if (!entry.is_predict) metrics["train/global_step"] = entry.step;
        database_->insert("metrics", {{"run_id", run_id_},
                                      {"timestamp", tracked::iso_time(entry.time)},
                                      {"run_name", run_name_},
                                      {"step", step++},
                                      {"metrics", trackio_text(metrics)},
                                      {"log_id", tracked::random_text(32)}});
      }
    });
    next_step_ = step;
  }

  void finish() override { database_.reset(); }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  /// The run of this name that is there, else a new one.
  void choose_run(const std::string& name) {
    run_name_ = name.empty() ? tracked::random_run_name() : name;
    const auto found = database_->run(
        "SELECT run_id, MAX(step) FROM metrics WHERE run_name = ? GROUP BY run_id ORDER BY MAX(id) "
        "DESC LIMIT 1",
        {run_name_});
    run_id_ = found.empty() ? tracked::random_text(32) : std::get<std::string>(found[0][0]);
    next_step_ = found.empty() ? 0 : std::get<int64_t>(found[0][1]) + 1;
  }

  std::filesystem::path folder_;
  std::unique_ptr<SqliteDatabase> database_;
  std::string run_id_, run_name_;
  int64_t next_step_ = 0;
};

}  // namespace

std::shared_ptr<Tracker> trackio_tracker(std::filesystem::path folder) {
  return in_background("trackio", std::make_unique<TrackioWriter>(std::move(folder)));
}

}  // namespace gradus
