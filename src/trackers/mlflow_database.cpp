#include <gradus/core/error.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trackers/mlflow_store.h"
#include "trackers/sqlite_database.h"
#include "trackers/tracked_run.h"

namespace gradus {
namespace {

// The tables of tracking in an early version of MLflow's schema, and the number of that version.
// MLflow finds the others missing when it opens the file and brings all of them up to date.
constexpr const char* kMlflowTables[] = {
    "CREATE TABLE experiments (experiment_id INTEGER NOT NULL, name VARCHAR(256) NOT NULL, "
    "artifact_location VARCHAR(256), lifecycle_stage VARCHAR(32), CONSTRAINT experiment_pk PRIMARY "
    "KEY (experiment_id), CONSTRAINT experiments_lifecycle_stage CHECK (lifecycle_stage IN "
    "('active', 'deleted')), UNIQUE (name))",
    "CREATE TABLE runs (run_uuid VARCHAR(32) NOT NULL, name VARCHAR(250), source_type VARCHAR(20), "
    "source_name VARCHAR(500), entry_point_name VARCHAR(50), user_id VARCHAR(256), status "
    "VARCHAR(20), start_time BIGINT, end_time BIGINT, source_version VARCHAR(50), lifecycle_stage "
    "VARCHAR(20), artifact_uri VARCHAR(200), experiment_id INTEGER, CONSTRAINT run_pk PRIMARY KEY "
    "(run_uuid), CONSTRAINT source_type CHECK (source_type IN ('NOTEBOOK', 'JOB', 'LOCAL', "
    "'UNKNOWN', 'PROJECT')), CONSTRAINT status CHECK (status IN ('SCHEDULED', 'FAILED', 'FINISHED',"
    " 'RUNNING')), CONSTRAINT runs_lifecycle_stage CHECK (lifecycle_stage IN ('active', "
    "'deleted')), FOREIGN KEY(experiment_id) REFERENCES experiments (experiment_id))",
    "CREATE TABLE params (\"key\" VARCHAR(250) NOT NULL, value VARCHAR(250) NOT NULL, run_uuid "
    "VARCHAR(32) NOT NULL, CONSTRAINT param_pk PRIMARY KEY (\"key\", run_uuid), FOREIGN "
    "KEY(run_uuid) REFERENCES runs (run_uuid))",
    "CREATE TABLE metrics (\"key\" VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT "
    "NOT NULL, run_uuid VARCHAR(32) NOT NULL, step BIGINT DEFAULT '0' NOT NULL, is_nan BOOLEAN "
    "DEFAULT '0' NOT NULL, CONSTRAINT metric_pk PRIMARY KEY (\"key\", timestamp, step, run_uuid, "
    "value, is_nan), FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid))",
    "CREATE TABLE experiment_tags (\"key\" VARCHAR(250) NOT NULL, value VARCHAR(5000), "
    "experiment_id INTEGER NOT NULL, CONSTRAINT experiment_tag_pk PRIMARY KEY (\"key\", "
    "experiment_id), FOREIGN KEY(experiment_id) REFERENCES experiments (experiment_id))",
    "CREATE TABLE tags (\"key\" VARCHAR(250) NOT NULL, value VARCHAR(5000), run_uuid VARCHAR(32) "
    "NOT NULL, CONSTRAINT tag_pk PRIMARY KEY (\"key\", run_uuid), FOREIGN KEY(run_uuid) REFERENCES "
    "runs (run_uuid))",
    "CREATE TABLE latest_metrics (\"key\" VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp "
    "BIGINT, step BIGINT NOT NULL, is_nan BOOLEAN NOT NULL, run_uuid VARCHAR(32) NOT NULL, "
    "CONSTRAINT latest_metric_pk PRIMARY KEY (\"key\", run_uuid), FOREIGN KEY(run_uuid) REFERENCES "
    "runs (run_uuid))",
    ("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT "
     "alembic_version_pkc PRIMARY KEY (version_num))"),
    "INSERT INTO alembic_version VALUES ('89d4b8295536')",
};

class MlflowDatabase : public MlflowStore {
 public:
  MlflowDatabase(const std::filesystem::path& file, std::filesystem::path artifacts)
      : database_(file), artifacts_(std::move(artifacts)) {}

  std::string create_run(const MlflowRun& run) override {
    const auto id = tracked::random_text(32);
    database_.transaction([&] {
      if (database_.columns("runs").empty())
        for (const auto* statement : kMlflowTables) database_.run(statement);
      const auto [experiment, location] = find_experiment(run);
      database_.insert("runs", {{"run_uuid", id},
                                {"name", run.name},
                                {"source_type", "UNKNOWN"},
                                {"source_name", ""},
                                {"entry_point_name", ""},
                                {"user_id", run.user},
                                {"status", "RUNNING"},
                                {"start_time", run.start_time},
                                {"source_version", ""},
                                {"lifecycle_stage", "active"},
                                {"artifact_uri", location + "/" + id + "/artifacts"},
                                {"experiment_id", experiment}});
      for (const auto& [key, value] : run.tags)
        database_.insert("tags", {{"key", key}, {"value", value}, {"run_uuid", id}});
    });
    return id;
  }

  void describe_run(const std::string& run_id, const MlflowParameters& parameters,
                    const std::map<std::string, std::string>& tags) override {
    if (database_.run("SELECT 1 FROM runs WHERE run_uuid = ?", {run_id}).empty())
      throw Error("G-TRACK-2", ErrorKind::io, "the database has no run " + run_id,
                  "MLFLOW_RUN_ID names the run; unset it to begin a new one.");
    database_.transaction([&] {
      for (const auto& [key, value] : parameters)
        database_.insert("params", {{"key", key}, {"value", value}, {"run_uuid", run_id}},
                         "INSERT OR IGNORE");
      for (const auto& [key, value] : tags)
        database_.insert("tags", {{"key", key}, {"value", value}, {"run_uuid", run_id}},
                         "INSERT OR REPLACE");
    });
  }

  void log_metrics(const std::string& run_id, std::span<const MlflowMetric> metrics) override {
    constexpr double kMost = std::numeric_limits<double>::max();  // MLflow's infinity
    std::map<std::string, const MlflowMetric*> newest;
    std::vector<std::pair<std::string, SqlValue>> row_of_metric = {
        {"key", ""}, {"value", 0.0}, {"timestamp", 0},
        {"step", 0}, {"is_nan", 0},  {"run_uuid", run_id}};
    const auto row = [&](const MlflowMetric& metric) -> const auto& {
      const bool is_nan = std::isnan(metric.value);
      row_of_metric[0].second = metric.key;
      row_of_metric[1].second = is_nan ? 0.0 : std::clamp(metric.value, -kMost, kMost);
      row_of_metric[2].second = metric.time;
      row_of_metric[3].second = metric.step;
      row_of_metric[4].second = int64_t(is_nan);
      return row_of_metric;
    };
    database_.transaction([&] {
      for (const auto& metric : metrics) {
        database_.insert("metrics", row(metric), "INSERT OR IGNORE");
        auto& last = newest[metric.key];
        if (last == nullptr || last->step <= metric.step) last = &metric;
      }
      for (const auto& [key, metric] : newest) {
        const auto later = database_.run(
            "SELECT 1 FROM latest_metrics WHERE \"key\" = ? AND run_uuid = ? AND step > ?",
            {key, run_id, metric->step});
        if (later.empty()) database_.insert("latest_metrics", row(*metric), "INSERT OR REPLACE");
      }
    });
  }

  void end_run(const std::string& run_id, int64_t end_time) override {
    database_.run("UPDATE runs SET status = 'FINISHED', end_time = ? WHERE run_uuid = ?",
                  {end_time, run_id});
  }

 private:
  /// Number and artifact location of the experiment, which is made if there is none of that name.
  std::pair<int64_t, std::string> find_experiment(const MlflowRun& run) {
    const auto add = [&](int64_t id, const std::string& name) {
      database_.insert("experiments",
                       {{"experiment_id", id},
                        {"name", name},
                        {"artifact_location", (artifacts_ / std::to_string(id)).string()},
                        {"lifecycle_stage", "active"},
                        {"creation_time", run.start_time},
                        {"last_update_time", run.start_time}});
    };
    if (database_.run("SELECT 1 FROM experiments LIMIT 1").empty()) add(0, "Default");
    const auto name = run.experiment.empty() ? "Default" : run.experiment;
    const std::string query =
        "SELECT experiment_id, artifact_location FROM experiments WHERE name = ?";
    auto found = database_.run(query, {name});
    if (found.empty()) {
      const auto last = database_.run("SELECT MAX(experiment_id) FROM experiments");
      add(std::get<int64_t>(last[0][0]) + 1, name);
      found = database_.run(query, {name});
    }
    const auto* location = std::get_if<std::string>(&found[0][1]);
    return {std::get<int64_t>(found[0][0]), location != nullptr ? *location : artifacts_.string()};
  }

  SqliteDatabase database_;
  std::filesystem::path artifacts_;
};

}  // namespace

std::unique_ptr<MlflowStore> mlflow_database(const std::filesystem::path& file,
                                             const std::filesystem::path& artifacts) {
  return std::make_unique<MlflowDatabase>(file, artifacts);
}

}  // namespace gradus
