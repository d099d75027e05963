#pragma once

#include <gradus/config/training_arguments.h>
#include <gradus/optim/factory.h>

namespace gradus {

/// What training arguments say about the optimizer, for `make_optimizer`: rates, weight decay,
/// Adam's settings, `optim_args` and `optim_target_modules`. `warmup_steps` is passed on as it was
/// given, also where it is a share of all steps, as transformers does.
OptimizerArguments optimizer_arguments(const TrainingArguments& args);

}  // namespace gradus
