#include <gradus/config/optimizer_arguments.h>

namespace gradus {

OptimizerArguments optimizer_arguments(const TrainingArguments& args) {
  OptimizerArguments result{.learning_rate = args.learning_rate,
                            .weight_decay = args.weight_decay,
                            .adam_beta1 = args.adam_beta1,
                            .adam_beta2 = args.adam_beta2,
                            .adam_epsilon = args.adam_epsilon,
                            .warmup_steps = args.warmup_steps.value(),
                            .optim_args = args.optim_args.value_or("")};
  if (const auto& targets = args.optim_target_modules)
    result.target_modules = TargetModules{targets->words(), targets->is_single()};
  return result;
}

}  // namespace gradus
