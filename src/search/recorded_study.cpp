#include "search/recorded_study.h"

#include <gradus/core/error.h>
#include <gradus/core/json.h>

#include <cmath>

#include "search/process_owner.h"
#include "search/study_row.h"

namespace gradus::search {
namespace {

/// Reads one study. All its rows come by a few statements, whatever the number of trials.
class StudyRows {
 public:
  StudyRows(SqliteDatabase& database, int64_t study) : database_(database), study_(study) {}

  std::vector<FrozenTrial> trials() {
    std::vector<FrozenTrial> found;
    for (const auto& row : database_.run(
             "SELECT trial_id, number, state FROM trials WHERE study_id = ? ORDER BY number",
             {study_})) {
      places_[field_of<int64_t>(row[0])] = found.size();
      found.push_back({.id = field_of<int64_t>(row[0]),
                       .number = field_of<int64_t>(row[1]),
                       .state = state_of_name(field_of<std::string>(row[2]))});
    }
    std::map<std::string, Distribution> known;  // most trials have the same
    for_each("param_name, param_value, distribution_json", "trial_params", found,
             [&](FrozenTrial& trial, const std::vector<SqlValue>& row) {
               const auto& name = field_of<std::string>(row[1]);
               const auto& text = field_of<std::string>(row[3]);
               if (!known.contains(text)) known.emplace(text, Distribution::from_json(text));
               const auto number = trial.numbers[name] = number_of_field(row[2]);
               static_cast<void>(known.at(text).value_of(number));  // refuses what is none
               trial.distributions.insert_or_assign(name, known.at(text));
             });
    for_each("value, value_type", "trial_values", found,
             [](FrozenTrial& trial, const std::vector<SqlValue>& row) {
               trial.value = typed_number_of(row[1], row[2]);
             });
    for_each("step, intermediate_value, intermediate_value_type", "trial_intermediate_values",
             found, [](FrozenTrial& trial, const std::vector<SqlValue>& row) {
               trial.intermediate_values[field_of<int64_t>(row[1])] =
                   typed_number_of(row[2], row[3]);
             });
    for_each("\"key\", value_json", "trial_system_attributes", found,
             [](FrozenTrial& trial, const std::vector<SqlValue>& row) {
               trial.system_attrs[field_of<std::string>(row[1])] =
                   parse_json(field_of<std::string>(row[2]), "an attribute of a trial");
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
      if (const auto place = places_.find(field_of<int64_t>(row[0])); place != places_.end())
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
    const auto id = field_of<int64_t>(row[0]);
    const auto directions =
        database.run("SELECT direction FROM study_directions WHERE study_id = ?", {id});
    if (directions.size() != 1) continue;  // several objectives have no best trial
    RecordedStudy study{.name = field_of<std::string>(row[1])};
    if (field_of<std::string>(directions[0][0]) == "MAXIMIZE")
      study.direction = Direction::maximize;
    for (const auto& noted : database.run(
             "SELECT \"key\", value_json FROM study_user_attributes WHERE study_id = ?", {id}))
      study.user_attrs[field_of<std::string>(noted[0])] =
          parse_json(field_of<std::string>(noted[1]), "an attribute of a study");
    study.trials = StudyRows(database, id).trials();
    found.push_back(std::move(study));
  }
  database.run("COMMIT");
  return found;
}

}  // namespace gradus::search
