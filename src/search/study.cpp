#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/search/study.h>

#include <algorithm>
#include <cmath>

#include "search/process_owner.h"
#include "search/study_file.h"

namespace gradus::search {
namespace {

using nlohmann::json;

constexpr const char* kOwner = "gradus:process";
constexpr const char* kSampler = "gradus:sampler";
constexpr const char* kFixed = "fixed_params";  // of a trial that was put into Optuna's queue
constexpr const char* kRelative = "tpe:relative_params:";
constexpr size_t kLongestNote = 2045;  // of a system attribute, in Optuna

bool same_kind(const Distribution& a, const Distribution& b) {
  if (a.kind() != b.kind() || a.log() != b.log()) return false;
  return a.kind() != Distribution::Kind::categorical || a == b;
}

// What `study.enqueue_trial` of Optuna has given a parameter.
std::optional<double> fixed_number(const FrozenTrial& trial, const std::string& name,
                                   const Distribution& distribution) {
  const auto fixed = trial.system_attrs.find(kFixed);
  if (fixed == trial.system_attrs.end() || !fixed->is_object() || !fixed->contains(name))
    return std::nullopt;
  const double number = distribution.number_of((*fixed)[name]);
  if (!distribution.contains(number))
    log_warning(
        fmt::format("Trial {} was given {} = {}, which its space does not have; it is used "
                    "all the same.",
                    trial.number, name, dump_json((*fixed)[name])));
  return number;
}

}  // namespace

// Trial.

json Trial::params() const { return frozen().params(); }
FrozenTrial Trial::frozen() const { return study_->file_->trial(id_); }

json Trial::suggest(const std::string& name, const Distribution& distribution) {
  const auto now = frozen();
  if (const auto known = now.distributions.find(name); known != now.distributions.end()) {
    if (!same_kind(known->second, distribution))
      throw Error("G-SEARCH-2", ErrorKind::usage,
                  fmt::format("trial {} has the parameter '{}' already, with another kind of "
                              "distribution: {}",
                              number_, name, known->second.to_json()),
                  "Give every parameter a name of its own, or start another study.");
    return known->second.value_of(now.numbers.at(name));
  }
  double number = 0;
  study_->file_->together([&] {
    if (const auto fixed = fixed_number(now, name, distribution))
      number = *fixed;
    else
      number = distribution.is_single() ? distribution.low()
                                        : study_->choose(*this, now, name, distribution);
    study_->file_->set_param(id_, name, number, distribution);
    study_->keep_sampler_state();
  });
  return distribution.value_of(number);
}

double Trial::suggest_float(const std::string& name, double low, double high, bool log,
                            std::optional<double> step) {
  return suggest(name, Distribution::real(low, high, log, step)).get<double>();
}

int64_t Trial::suggest_int(const std::string& name, int64_t low, int64_t high, bool log,
                           int64_t step) {
  return suggest(name, Distribution::integer(low, high, log, step)).get<int64_t>();
}

json Trial::suggest_categorical(const std::string& name, std::vector<json> choices) {
  return suggest(name, Distribution::categorical(std::move(choices)));
}

void Trial::report(double value, int64_t step) {
  study_->file_->together([&] { study_->file_->set_intermediate(id_, step, value); });
}

bool Trial::should_prune() {
  const auto trials = study_->trials();
  const auto verdict = study_->pruner_->judge({trials, study_->direction_}, frozen());
  if (!verdict.notes.empty())
    study_->file_->together([&] {
      for (const auto& [key, value] : verdict.notes.items())
        study_->file_->set_trial_attr(id_, "system", key, value);
    });
  return verdict.prune;
}

void Trial::set_user_attr(const std::string& key, const json& value) {
  study_->file_->together([&] { study_->file_->set_trial_attr(id_, "user", key, value); });
}

// Study.

Study::Study(StudyOptions options)
    : direction_(parse_direction(options.direction)),
      sampler_(options.sampler ? std::move(options.sampler) : std::make_shared<TPESampler>()),
      pruner_(options.pruner ? std::move(options.pruner) : std::make_shared<MedianPruner>()),
      file_(std::make_unique<StudyFile>(options.storage, options.study_name, direction_)) {
  load_sampler_state();
}

Study::~Study() = default;

void Study::keep_sampler_state() { file_->set_study_attr("system", kSampler, sampler_->state()); }

std::vector<FrozenTrial> Study::trials() const { return file_->trials(); }

// What the sampler has chosen together with others, else by itself.
double Study::choose(Trial& trial, const FrozenTrial& now, const std::string& name,
                     const Distribution& distribution) {
  load_sampler_state();  // another process may have drawn
  const auto all = trials();
  const StudyView view{all, direction_};
  if (!trial.together_) {
    trial.together_ = sampler_->sample_together(view, now);
    // Other processes see what the trial is going to use.
    auto values = json::object();
    for (const auto& each : all)
      for (const auto& [key, known] : each.distributions)
        if (const auto number = trial.together_->find(key);
            number != trial.together_->end() && known.contains(number->second))
          values[key] = known.value_of(number->second);
    const auto text = values.empty() ? std::string() : dump_json(values);
    for (size_t at = 0; at < text.size(); at += kLongestNote)
      file_->set_trial_attr(trial.id_, "system", kRelative + std::to_string(at / kLongestNote),
                            text.substr(at, kLongestNote));
  }
  const auto chosen = trial.together_->find(name);
  if (chosen != trial.together_->end() && distribution.contains(chosen->second))
    return chosen->second;
  return sampler_->sample_one(view, now, name, distribution);
}

void Study::load_sampler_state() {
  try {
    sampler_->load(file_->study_attr("system", kSampler));
  } catch (const json::exception& error) {
    throw Error(
        "G-SEARCH-2", ErrorKind::data,
        std::string("the study holds a state of its sampler that cannot be read: ") + error.what(),
        "The file is damaged, or was changed by another program.");
  }
}

Trial Study::begin_trial(const std::map<std::string, Distribution>& space) {
  load_sampler_state();
  const auto all = trials();
  for (const auto& left : all) {
    if (left.state != TrialState::running) continue;
    if (!is_gone(left.system_attrs.value(kOwner, json()))) continue;
    log_info(fmt::format("Trial {} was left by a process that is no more; it is taken up again.",
                         left.number));
    file_->set_trial_attr(left.id, "system", kOwner, this_process());
    return Trial(*this, left.id, left.number);
  }
  const auto waits = std::find_if(
      all.begin(), all.end(), [](const auto& each) { return each.state == TrialState::waiting; });
  if (waits != all.end()) file_->begin(waits->id);
  const auto id = waits != all.end() ? waits->id : file_->add_trial();
  const auto added = file_->trial(id);
  file_->set_trial_attr(id, "system", kOwner, this_process());
  const auto notes = sampler_->before_trial({all, direction_}, added);
  for (const auto& [key, value] : notes.items()) file_->set_trial_attr(id, "system", key, value);
  Trial trial(*this, id, added.number);
  for (const auto& [name, distribution] : space) trial.suggest(name, distribution);
  keep_sampler_state();
  return trial;
}

Trial Study::ask(const std::map<std::string, Distribution>& space) {
  std::optional<Trial> made;
  file_->together([&] { made = begin_trial(space); });
  return *made;
}

std::optional<Trial> Study::ask_up_to(int64_t n_trials,
                                      const std::map<std::string, Distribution>& space) {
  std::optional<Trial> made;
  file_->together([&] {
    const auto all = trials();
    const bool has_left = std::any_of(all.begin(), all.end(), [](const auto& each) {
      return each.state == TrialState::waiting ||
             (each.state == TrialState::running &&
              is_gone(each.system_attrs.value(kOwner, json())));
    });
    const bool may_add =
        int64_t(all.size()) < n_trials && !sampler_->is_exhausted({all, direction_});
    if (has_left || may_add) made = begin_trial(space);
  });
  return made;
}

Trial Study::trial(int64_t id) { return Trial(*this, id, file_->trial(id).number); }

void Study::tell(const Trial& trial, double value) {
  file_->together([&] {
    if (std::isnan(value))
      file_->set_trial_attr(trial.id(), "system", "fail_reason", "The objective is NaN.");
    file_->finish(trial.id(), std::isnan(value) ? TrialState::fail : TrialState::complete, value);
  });
}

void Study::tell(const Trial& trial, TrialState state) {
  std::optional<double> value;
  const auto now = trial.frozen();
  if (state == TrialState::pruned && now.last_step())
    value = now.intermediate_values.at(*now.last_step());
  file_->finish(trial.id(), state, value);
}

void Study::optimize(const std::function<double(Trial&)>& objective, int64_t n_trials) {
  while (auto trial = ask_up_to(n_trials)) {
    try {
      tell(*trial, objective(*trial));
    } catch (const TrialPruned&) {
      tell(*trial, TrialState::pruned);
    } catch (const SearchInterrupted&) {
      throw;
    } catch (...) {
      tell(*trial, TrialState::fail);
      throw;
    }
  }
}

FrozenTrial Study::best_trial() const {
  std::optional<FrozenTrial> best;
  for (auto& trial : trials()) {
    if (trial.state != TrialState::complete || !trial.value) continue;
    const bool better = !best || (direction_ == Direction::minimize ? *trial.value < *best->value
                                                                    : *trial.value > *best->value);
    if (better) best = std::move(trial);
  }
  if (!best)
    throw Error("G-SEARCH-5", ErrorKind::training, "no trial of the study is complete",
                "The log says why they failed or were pruned.");
  return *best;
}

void Study::set_user_attr(const std::string& key, const json& value) {
  file_->together([&] { file_->set_study_attr("user", key, value); });
}
json Study::user_attr(const std::string& key) const { return file_->study_attr("user", key); }

}  // namespace gradus::search
