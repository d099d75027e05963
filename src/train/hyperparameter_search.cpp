#include <fmt/format.h>
#include <gradus/config/trainer_arguments.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>

#include "train/search_run.h"
#include "train/trainer_parts.h"

namespace gradus {
namespace {

using nlohmann::json;

// Sets an argument and gives it its value back.
class OutputFolder {
 public:
  OutputFolder(TrainingArguments& args, const std::string& below)
      : args_(args), before_(args.output_dir) {
    args_.output_dir = (std::filesystem::path(*before_) / below).string();
  }
  ~OutputFolder() { args_.output_dir = before_; }
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

 private:
  TrainingArguments& args_;
  std::optional<std::string> before_;
};

}  // namespace

json default_hp_space(search::Trial& trial) {
  return {{"learning_rate", trial.suggest_float("learning_rate", 1e-6, 1e-4, /*log=*/true)},
          {"num_train_epochs", trial.suggest_int("num_train_epochs", 1, 5)},
          {"seed", trial.suggest_int("seed", 1, 40)},
          {"per_device_train_batch_size",
           trial.suggest_categorical("per_device_train_batch_size", {4, 8, 16, 32, 64})}};
}

double default_compute_objective(const Metrics& metrics) {
  double sum = 0;
  bool has_others = false;
  for (const auto& [name, value] : metrics) {
    if (name == "eval_loss" || name == "epoch" || name.ends_with("_runtime") ||
        name.ends_with("_per_second"))
      continue;
    has_others = true;
    sum += value;
  }
  if (has_others) return sum;
  const auto loss = metrics.find("eval_loss");
  if (loss == metrics.end())
    throw Error("G-SEARCH-6", ErrorKind::training,
                "an evaluation gave neither a loss nor another metric to search for",
                "Give compute_metrics, compute_objective, or data with labels.");
  return loss->second;
}

void SearchRun::set_arguments(TrainingArguments& args) const {
  const auto values = options.hp_space(*trial);
  OptionSet set;
  add_options(set, args);
  const auto known = set.values();
  for (const auto& [name, value] : values.items()) {
    if (known.contains(name))
      set.read_dict({{name, value}}, "the space of the search");
    else
      log_warning(
          fmt::format("Trying to set {} in the hyperparameter search but there is no "
                      "corresponding field in TrainingArguments.",
                      name));
  }
  set.check();
  log_info("Trial: " + dump_json(trial->params()));
}

void SearchRun::describe(TrainerState& state) const {
  state.is_hyper_param_search = true;
  if (options.hp_name) state.trial_name = options.hp_name(*trial);
  state.trial_params = trial->params();
}

void SearchRun::report(const Metrics& metrics, int64_t step) {
  objective = options.compute_objective(metrics);
  trial->report(*objective, step);
  if (trial->should_prune()) throw search::TrialPruned();
}

std::string SearchRun::folder() const {
  return options.hp_name ? options.hp_name(*trial) : fmt::format("run-{}", trial->number());
}

BestRun Trainer::hyperparameter_search(HyperparameterSearch search) {
  auto& p = *parts_;
  if (!p.model_init)
    throw Error("G-SEARCH-6", ErrorKind::usage,
                "a hyperparameter search needs a new model for every trial: model_init is not set",
                "Give TrainerOptions::model_init in place of model.");
  if (p.processes.size() > 1)
    throw Error("G-SEARCH-6", ErrorKind::usage,
                "a hyperparameter search runs in one process; there are " +
                    std::to_string(p.processes.size()),
                "Start one process, or several searches with the same storage.");
  if (!search.hp_space) search.hp_space = default_hp_space;
  if (!search.compute_objective) search.compute_objective = default_compute_objective;
  search::Study study({.storage = search.storage,
                       .study_name = search.study_name,
                       .direction = search.direction,
                       .sampler = search.sampler,
                       .pruner = search.pruner});
  const auto train_trial = [&](search::Trial& trial) {
    SearchRun run{.options = search, .trial = &trial};
    const bool goes_on = !trial.frozen().numbers.empty();  // a killed process has begun it
    const OutputFolder folder(p.args, run.folder());
    p.search = &run;
    try {
      train(goes_on ? Resume::last() : Resume::none());
      p.search = nullptr;
    } catch (...) {
      p.search = nullptr;
      throw;
    }
    if (p.control.is_interrupted) throw search::SearchInterrupted();
    return run.objective ? *run.objective : search.compute_objective(evaluate());
  };
  try {
    study.optimize(train_trial, search.n_trials);
  } catch (const search::SearchInterrupted&) {
    log_warning("The search was interrupted. With a storage it goes on when it is started again.");
  }
  const auto best = study.best_trial();
  return {std::to_string(best.number), *best.value, best.params()};
}

}  // namespace gradus
