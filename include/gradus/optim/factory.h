#pragma once

#include <gradus/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

namespace gradus {

/// The training arguments that reach an optimizer, under HF's names.
struct OptimizerArguments {
  /// As in `TrainingArguments`.
  double learning_rate = 5e-5;
  double weight_decay = 0.0;  ///< for groups that set none
  /// As in `TrainingArguments`.
  double adam_beta1 = 0.9;
  /// As in `TrainingArguments`.
  double adam_beta2 = 0.999;
  /// As in `TrainingArguments`.
  double adam_epsilon = 1e-8;
  double warmup_steps = 0.0;    ///< used by schedule-free optimizers
  std::string optim_args = "";  ///< "momentum=0.9,nesterov=true"
};

/// Makes the optimizer HF's `--optim` calls `name`, with the settings `Trainer` would give it.
/// Throws `Error` G-OPTIM-5 for a name of the reference that is not there yet, with the list of
/// those that are; G-OPTIM-6 for an unknown name, with the nearest; G-OPTIM-7 for `optim_args` that
/// do not parse or are not known.
std::shared_ptr<Optimizer> make_optimizer(const std::string& name,
                                          std::vector<ParamGroupInit> groups,
                                          const OptimizerArguments& args = {});

/// The names `make_optimizer` takes.
const std::vector<std::string>& optimizer_names();
/// Names of the reference that are not there yet.
const std::vector<std::string>& missing_optimizer_names();
/// Throws what `make_optimizer` would for `name`, without parameters: for checks before work
/// begins.
void check_optimizer_name(const std::string& name);

}  // namespace gradus
