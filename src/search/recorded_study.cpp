#include "search/recorded_study.h"

#include <gradus/core/error.h>
#include <gradus/core/json.h>

#include <cmath>

#include "search/process_owner.h"
#include "trackers/sqlite_database.h"

namespace gradus::search {
namespace {

using Rows = std::vector<std::vector<SqlValue>>;

/// A field of a row. A file may hold anything.
template <class T>
const T& field(const SqlValue& value) {
  if (const auto* found = std::get_if<T>(&value)) return *found;
  throw Error("G-SEARCH-2", ErrorKind::data, "the study holds a value of another kind");
}

double number_field(const SqlValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return double(*whole);
  const auto* real = std::get_if<double>(&value);
  return real != nullptr ? *real : std::nan("");
}

/// A number, with the word for those that SQL does not have.
double typed_number(const SqlValue& value, const SqlValue& kind) {
  const auto& word = field<std::string>(kind);
  if (word == "INF_POS") return HUGE_VAL;
  if (word == "INF_NEG") return -HUGE_VAL;
  return word == "NAN" ? std::nan("") : number_field(value);
}

/// Reads one study. All its rows come by a few statements, whatever the number of trials.
class StudyRows {
 public:
  StudyRows(SqliteDatabase& database, int64_t study) : database_(database), study_(study) {}

  std::vector<FrozenTrial> trials() {
    std::vector<FrozenTrial> found;
    for (const auto& row : database_.run(
             "SELECT trial_id, number, state FROM trials WHERE study_id = ? ORDER BY number",
             {study_})) {
      places_[field<int64_t>(row[0])] = found.size();
      found.push_back({.id = field<int64_t>(row[0]),
                       .number = field<int64_t>(row[1]),
                       .state = state_of_name(field<std::string>(row[2]))});
    }
    std::map<std::string, Distribution> known;  // most trials have the same
    for_each("param_name, param_value, distribution_json", "trial_params", found,
             [&](FrozenTrial& trial, const std::vector<SqlValue>& row) {
               const auto& name = field<std::string>(row[1]);
               const auto& text = field<std::string>(row[3]);
               if (!known.contains(text)) known.emplace(text, Distribution::from_json(text));
               trial.numbers[name] = number_field(row[2]);
               trial.distributions.insert_or_assign(name, known.at(text));
             });
    for_each("value, value_type", "trial_values", found,
             [](FrozenTrial& trial, const std::vector<SqlValue>& row) {
               trial.value = typed_number(row[1], row[2]);
             });
    for_each("step, intermediate_value, intermediate_value_type", "trial_intermediate_values",
             found, [](FrozenTrial& trial, const std::vector<SqlValue>& row) {
               trial.intermediate_values[field<int64_t>(row[1])] = typed_number(row[2], row[3]);
             });
    for_each("\"key\", value_json", "trial_system_attributes", found,
             [](FrozenTrial& trial, const std::vector<SqlValue>& row) {
               trial.system_attrs[field<std::string>(row[1])] =
                   parse_json(field<std::string>(row[2]), "an attribute of a trial");
             });
    return found;
  }

 private:
  template <class Work>
  void for_each(const std::string& columns, const std::string& table,
                std::vector<FrozenTrial>& trials, Work work) {
    for (const auto& row : database_.run("SELECT trial_id, " + columns + " FROM " + table +
                                             " WHERE trial_id IN (SELECT trial_id FROM trials "
                                             "WHERE study_id = ?)",
                                         {study_}))
      if (const auto place = places_.find(field<int64_t>(row[0])); place != places_.end())
        work(trials[place->second], row);
  }

  SqliteDatabase& database_;
  int64_t study_;
  std::map<int64_t, size_t> places_;  // of trials, by their ids
};

}  // namespace

std::optional<size_t> RecordedStudy::best() const {
  std::optional<size_t> found;
  for (size_t i = 0; i < trials.size(); ++i) {
    const auto& trial = trials[i];
    if (trial.state != TrialState::complete || !trial.value || std::isnan(*trial.value)) continue;
    if (!found || is_better(*trial.value, *trials[*found].value)) found = i;
  }
  return found;
}

std::vector<double> RecordedStudy::best_so_far() const {
  std::vector<double> values;
  double best = std::nan("");
  for (const auto& trial : trials) {
    const bool counts = trial.state == TrialState::complete && trial.value;
    if (counts && (std::isnan(best) || is_better(*trial.value, best))) best = *trial.value;
    values.push_back(best);
  }
  return values;
}

bool is_under_way(const FrozenTrial& trial) {
  return trial.state == TrialState::running &&
         !is_gone(trial.system_attrs.value("gradus:process", nlohmann::json()));
}

std::vector<RecordedStudy> read_studies(const std::filesystem::path& file) {
  SqliteDatabase database(file, SqliteDatabase::Access::read);
  if (database.columns("studies").empty() || database.columns("trial_params").empty()) return {};
  database.run("BEGIN");  // all of it as of one moment
  std::vector<RecordedStudy> found;
  for (const auto& row : database.run("SELECT study_id, study_name FROM studies ORDER BY 2")) {
    const auto id = field<int64_t>(row[0]);
    const auto directions =
        database.run("SELECT direction FROM study_directions WHERE study_id = ?", {id});
    if (directions.size() != 1) continue;  // several objectives have no best trial
    RecordedStudy study{.name = field<std::string>(row[1])};
    if (field<std::string>(directions[0][0]) == "MAXIMIZE") study.direction = Direction::maximize;
    for (const auto& noted : database.run(
             "SELECT \"key\", value_json FROM study_user_attributes WHERE study_id = ?", {id}))
      study.user_attrs[field<std::string>(noted[0])] =
          parse_json(field<std::string>(noted[1]), "an attribute of a study");
    study.trials = StudyRows(database, id).trials();
    found.push_back(std::move(study));
  }
  database.run("COMMIT");
  return found;
}

}  // namespace gradus::search
