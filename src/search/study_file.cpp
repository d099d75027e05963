#include "search/study_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>

#include <chrono>
#include <cmath>
#include <ctime>

#include "search/study_row.h"

namespace gradus::search {
namespace {

using nlohmann::json;

// The revision of Optuna's tables since 3.2, and the last version that was looked at.
constexpr const char* kRevision = "v3.2.0.a";
constexpr const char* kOptuna = "5.0.0";

constexpr const char* kTables[] = {
    "CREATE TABLE studies (study_id INTEGER NOT NULL, study_name VARCHAR(512) NOT NULL, "
    "PRIMARY KEY (study_id))",
    "CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name)",
    "CREATE TABLE version_info (version_info_id INTEGER NOT NULL, schema_version INTEGER, "
    "library_version VARCHAR(256), PRIMARY KEY (version_info_id), CHECK (version_info_id=1))",
    "CREATE TABLE study_directions (study_direction_id INTEGER NOT NULL, direction VARCHAR(8) NOT "
    "NULL, study_id INTEGER NOT NULL, objective INTEGER NOT NULL, PRIMARY KEY "
    "(study_direction_id), UNIQUE (study_id, objective), FOREIGN KEY(study_id) REFERENCES studies "
    "(study_id))",
    "CREATE TABLE trials (trial_id INTEGER NOT NULL, number INTEGER, study_id INTEGER, state "
    "VARCHAR(8) NOT NULL, datetime_start DATETIME, datetime_complete DATETIME, PRIMARY KEY "
    "(trial_id), FOREIGN KEY(study_id) REFERENCES studies (study_id))",
    "CREATE INDEX ix_trials_study_id ON trials (study_id)",
    "CREATE TABLE trial_params (param_id INTEGER NOT NULL, trial_id INTEGER, param_name "
    "VARCHAR(512), param_value FLOAT, distribution_json TEXT, PRIMARY KEY (param_id), UNIQUE "
    "(trial_id, param_name), FOREIGN KEY(trial_id) REFERENCES trials (trial_id))",
    "CREATE TABLE trial_values (trial_value_id INTEGER NOT NULL, trial_id INTEGER NOT NULL, "
    "objective INTEGER NOT NULL, value FLOAT, value_type VARCHAR(7) NOT NULL, PRIMARY KEY "
    "(trial_value_id), UNIQUE (trial_id, objective), FOREIGN KEY(trial_id) REFERENCES trials "
    "(trial_id))",
    "CREATE TABLE trial_intermediate_values (trial_intermediate_value_id INTEGER NOT NULL, "
    "trial_id INTEGER NOT NULL, step INTEGER NOT NULL, intermediate_value FLOAT, "
    "intermediate_value_type VARCHAR(7) NOT NULL, PRIMARY KEY (trial_intermediate_value_id), "
    "UNIQUE (trial_id, step), FOREIGN KEY(trial_id) REFERENCES trials (trial_id))",
    "CREATE TABLE trial_heartbeats (trial_heartbeat_id INTEGER NOT NULL, trial_id INTEGER NOT "
    "NULL, heartbeat DATETIME NOT NULL, PRIMARY KEY (trial_heartbeat_id), UNIQUE (trial_id), "
    "FOREIGN KEY(trial_id) REFERENCES trials (trial_id))",
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT "
    "alembic_version_pkc PRIMARY KEY (version_num))",
};

// "study_user_attributes" and its like.
std::string attribute_table(const char* owner, const char* which) {
  return fmt::format(
      "CREATE TABLE {0}_{1}_attributes ({0}_{1}_attribute_id INTEGER NOT NULL, {0}_id INTEGER, "
      "\"key\" VARCHAR(512), value_json TEXT, PRIMARY KEY ({0}_{1}_attribute_id), UNIQUE ({0}_id, "
      "\"key\"), FOREIGN KEY({0}_id) REFERENCES {2} ({0}_id))",
      owner, which, owner == std::string("study") ? "studies" : "trials");
}

// UTC with microseconds, as SQLAlchemy stores a datetime.
std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const std::time_t seconds = std::time_t(micros / 1'000'000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc);
  return fmt::format("{}.{:06}", text, micros % 1'000'000);
}

// A number and the word that stands beside it for those that SQL has not.
std::pair<SqlValue, std::string> stored_number(double value) {
  if (std::isnan(value)) return {nullptr, "NAN"};
  if (std::isinf(value)) return {nullptr, value > 0 ? "INF_POS" : "INF_NEG"};
  return {value, "FINITE"};
}

}  // namespace

StudyFile::StudyFile(const std::filesystem::path& file, const std::string& name,
                     Direction direction)
    : database_(file.empty() ? ":memory:" : file) {
  const std::string word = direction == Direction::minimize ? "MINIMIZE" : "MAXIMIZE";
  together([&] {
    if (database_.columns("studies").empty()) make_tables();
    const auto revision = database_.run("SELECT version_num FROM alembic_version");
    if (revision.empty() || field_of<std::string>(revision[0][0]) != kRevision)
      throw Error("G-SEARCH-4", ErrorKind::data,
                  fmt::format("{} has the tables of another version of Optuna; expected {}",
                              file.string(), kRevision),
                  "Run `optuna storage upgrade`, or name another file.");
    const auto find = [&] {
      return database_.run("SELECT study_id FROM studies WHERE study_name = ?", {name});
    };
    auto found = find();
    if (found.empty()) {
      database_.run("INSERT INTO studies (study_name) VALUES (?)", {name});
      found = find();
      database_.run(
          "INSERT INTO study_directions (direction, study_id, objective) VALUES (?, ?, 0)",
          {word, found[0][0]});
    }
    study_ = field_of<int64_t>(found[0][0]);
    const auto directions =
        database_.run("SELECT direction FROM study_directions WHERE study_id = ?", {study_});
    if (directions.size() != 1 || field_of<std::string>(directions[0][0]) != word)
      throw Error("G-SEARCH-4", ErrorKind::usage,
                  fmt::format("the study '{}' of {} does not {} one objective", name, file.string(),
                              direction == Direction::minimize ? "minimize" : "maximize"),
                  "Name another study, or give the direction it was made with.");
  });
}

void StudyFile::make_tables() {
  for (const auto* statement : kTables) database_.run(statement);
  for (const char* owner : {"study", "trial"})
    for (const char* which : {"user", "system"}) database_.run(attribute_table(owner, which));
  database_.run("INSERT INTO version_info VALUES (1, 12, ?)", {kOptuna});
  database_.run("INSERT INTO alembic_version VALUES (?)", {kRevision});
}

void StudyFile::together(const std::function<void()>& work) {
  if (inside_) return work();
  inside_ = true;
  try {
    database_.transaction(work);
  } catch (...) {
    inside_ = false;
    throw;
  }
  inside_ = false;
}

void StudyFile::read_details(std::vector<FrozenTrial>& trials) {
  for (auto& trial : trials) {
    const std::vector<SqlValue> id = {trial.id};
    for (const auto& row : database_.run(
             "SELECT param_name, param_value, distribution_json FROM trial_params WHERE trial_id = "
             "? ORDER BY param_id",
             id)) {
      const auto& name = field_of<std::string>(row[0]);
      const auto distribution = Distribution::from_json(field_of<std::string>(row[2]));
      trial.numbers[name] = number_of_field(row[1]);
      static_cast<void>(distribution.value_of(trial.numbers[name]));  // refuses what is none
      trial.distributions.insert_or_assign(name, distribution);
    }
    for (const auto& row : database_.run(
             "SELECT value, value_type FROM trial_values WHERE trial_id = ? AND objective = 0", id))
      trial.value = typed_number_of(row[0], row[1]);
    for (const auto& row :
         database_.run("SELECT step, intermediate_value, intermediate_value_type FROM "
                       "trial_intermediate_values WHERE trial_id = ?",
                       id))
      trial.intermediate_values[field_of<int64_t>(row[0])] = typed_number_of(row[1], row[2]);
    for (const char* which : {"user", "system"}) {
      auto& attrs = which[0] == 'u' ? trial.user_attrs : trial.system_attrs;
      for (const auto& row : database_.run(
               fmt::format("SELECT \"key\", value_json FROM trial_{}_attributes WHERE trial_id = ?",
                           which),
               id))
        attrs[field_of<std::string>(row[0])] =
            parse_json(field_of<std::string>(row[1]), "an attribute of a trial");
    }
  }
}

std::vector<FrozenTrial> StudyFile::trials() {
  std::vector<FrozenTrial> fresh;
  std::map<int64_t, FrozenTrial> all;
  const auto read = [&] {
    for (const auto& row : database_.run(
             "SELECT trial_id, number, state FROM trials WHERE study_id = ? ORDER BY number",
             {study_})) {
      FrozenTrial trial{.id = field_of<int64_t>(row[0]),
                        .number = field_of<int64_t>(row[1]),
                        .state = state_of_name(field_of<std::string>(row[2]))};
      if (const auto known = finished_.find(trial.id); known != finished_.end())
        all[trial.number] = known->second;
      else
        fresh.push_back(std::move(trial));
    }
    read_details(fresh);
  };
  together(read);
  for (auto& trial : fresh) {
    if (trial.is_finished()) finished_[trial.id] = trial;
    all[trial.number] = std::move(trial);
  }
  std::vector<FrozenTrial> sorted;
  for (auto& [number, trial] : all) sorted.push_back(std::move(trial));
  return sorted;
}

FrozenTrial StudyFile::trial(int64_t id) {
  std::vector<FrozenTrial> one;
  together([&] {
    const auto rows = database_.run(
        "SELECT number, state FROM trials WHERE trial_id = ? AND study_id = ?", {id, study_});
    if (rows.empty())
      throw Error("G-SEARCH-4", ErrorKind::data, fmt::format("the study has no trial {}", id));
    one.push_back({.id = id,
                   .number = field_of<int64_t>(rows[0][0]),
                   .state = state_of_name(field_of<std::string>(rows[0][1]))});
    read_details(one);
  });
  return one.front();
}

int64_t StudyFile::add_trial() {
  int64_t id = 0;
  together([&] {
    const auto next = database_.run(
        "SELECT COALESCE(MAX(number), -1) + 1 FROM trials WHERE study_id = ?", {study_});
    database_.run(
        "INSERT INTO trials (number, study_id, state, datetime_start) VALUES (?, ?, 'RUNNING', ?)",
        {next[0][0], study_, utc_now()});
    id = field_of<int64_t>(database_.run("SELECT last_insert_rowid()")[0][0]);
  });
  return id;
}

void StudyFile::begin(int64_t trial) {
  database_.run(
      "UPDATE trials SET state = 'RUNNING', datetime_start = ? WHERE trial_id = ? AND state = "
      "'WAITING'",
      {utc_now(), trial});
}

void StudyFile::set_param(int64_t trial, const std::string& name, double number,
                          const Distribution& distribution) {
  database_.run(
      "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) VALUES (?, "
      "?, ?, ?)",
      {trial, name, number, distribution.to_json()});
}

void StudyFile::set_intermediate(int64_t trial, int64_t step, double value) {
  const auto [number, kind] = stored_number(value);
  database_.run(
      "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, "
      "intermediate_value_type) VALUES (?, ?, ?, ?) ON CONFLICT (trial_id, step) DO UPDATE SET "
      "intermediate_value = excluded.intermediate_value, intermediate_value_type = "
      "excluded.intermediate_value_type",
      {trial, step, number, kind});
}

void StudyFile::set_trial_attr(int64_t trial, const char* table, const std::string& key,
                               const json& value) {
  database_.run(fmt::format("INSERT INTO trial_{}_attributes (trial_id, \"key\", value_json) "
                            "VALUES (?, ?, ?) ON CONFLICT (trial_id, \"key\") DO UPDATE SET "
                            "value_json = excluded.value_json",
                            table),
                {trial, key, dump_json(value)});
}

void StudyFile::set_study_attr(const char* table, const std::string& key, const json& value) {
  database_.run(fmt::format("INSERT INTO study_{}_attributes (study_id, \"key\", value_json) "
                            "VALUES (?, ?, ?) ON CONFLICT (study_id, \"key\") DO UPDATE SET "
                            "value_json = excluded.value_json",
                            table),
                {study_, key, dump_json(value)});
}

json StudyFile::study_attr(const char* table, const std::string& key) {
  const auto rows = database_.run(
      fmt::format("SELECT value_json FROM study_{}_attributes WHERE study_id = ? AND \"key\" = ?",
                  table),
      {study_, key});
  return rows.empty() ? json() : parse_json(field_of<std::string>(rows[0][0]), "a study");
}

bool StudyFile::finish(int64_t trial, TrialState state, std::optional<double> value) {
  bool was_running = false;
  together([&] {
    was_running =
        !database_.run("SELECT 1 FROM trials WHERE trial_id = ? AND state = 'RUNNING'", {trial})
             .empty();
    if (!was_running) return;
    if (value && !std::isnan(*value)) {
      const auto [number, kind] = stored_number(*value);
      database_.run(
          "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES (?, 0, ?, ?)",
          {trial, number, kind});
    }
    database_.run("UPDATE trials SET state = ?, datetime_complete = ? WHERE trial_id = ?",
                  {std::string(state_name(state)), utc_now(), trial});
  });
  return was_running;
}

}  // namespace gradus::search
