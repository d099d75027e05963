#pragma once

#include <gradus/config/option_set.h>
#include <gradus/tasks/task.h>

#include <optional>
#include <string>

namespace gradus::cli {

/// The flags that `gradus plan` has beside those of `gradus train`.
struct PlanFlags {
  std::optional<std::string> gpu_memory = std::nullopt;
  std::optional<bool> measure = std::nullopt;

  /// Adds the flags; this object must outlive the set.
  void add_to(OptionSet& set);
};

/// How a run is planned.
struct PlanRequest {
  bool json = false;        ///< print one document
  bool is_dry_run = false;  ///< one step, and what the run would do
  PlanFlags flags = {};
};

/// Opens data and model, looks at them, makes some steps where that is asked for, and prints what
/// the run will need. Leaves nothing behind. Returns the exit code.
int plan_run(Task& task, const TrainingArguments& args, const PlanRequest& request);

}  // namespace gradus::cli
