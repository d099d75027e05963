#include "sweep_callback.h"
#include "core/parsed_json.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>

#include <cstdlib>

namespace gradus::cli {

std::string SweepTrial::to_text() const {
  return dump_json(nlohmann::json{{"storage", storage},
                                  {"study_name", study_name},
                                  {"direction", direction},
                                  {"pruner", pruner},
                                  {"metric", metric},
                                  {"id", id}});
}

std::optional<SweepTrial> SweepTrial::of_environment() {
  const char* text = std::getenv("GRADUS_TRIAL");
  if (text == nullptr || *text == '\0') return std::nullopt;
  const auto told = json_or_discarded(text);
  try {
    return SweepTrial{.storage = told.at("storage"),
                      .study_name = told.at("study_name"),
                      .direction = told.at("direction"),
                      .pruner = told.at("pruner"),
                      .metric = told.at("metric"),
                      .id = told.at("id")};
  } catch (const nlohmann::json::exception&) {
    throw Error("G-CLI-4", ErrorKind::usage, "the variable GRADUS_TRIAL is not what sweep sets",
                "Unset it; only `gradus sweep` uses it.");
  }
}

SweepCallback::SweepCallback(SweepTrial trial)
    : told_(std::move(trial)),
      study_({.storage = told_.storage,
              .study_name = told_.study_name,
              .direction = told_.direction,
              .pruner = search::make_pruner(told_.pruner)}),
      trial_(study_.trial(told_.id)) {}

void SweepCallback::on_train_begin(const TrainingArguments&, TrainerState& state, TrainerControl&,
                                   const CallbackContext&) {
  state.is_hyper_param_search = true;
  state.trial_name = fmt::format("run-{}", trial_.number());
  state.trial_params = trial_.params();
}

void SweepCallback::on_evaluate(const TrainingArguments&, TrainerState& state,
                                TrainerControl& control, const CallbackContext& at) {
  if (!state.is_world_process_zero) return;
  const auto value = metric_named(at.metrics, told_.metric);
  if (!value) return;
  trial_.report(*value, state.global_step);
  if (!trial_.should_prune()) return;
  log_warning(fmt::format("The trial is pruned at step {}: {} is {}, and others were better.",
                          state.global_step, told_.metric, *value));
  study_.tell(trial_, search::TrialState::pruned);
  control.should_training_stop = true;
}

std::optional<double> metric_named(const Metrics& metrics, const std::string& name) {
  for (const auto& key : {name, "eval_" + name})
    if (const auto found = metrics.find(key); found != metrics.end()) return found->second;
  return std::nullopt;
}

}  // namespace gradus::cli
