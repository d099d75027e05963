#include "core/registry.h"

#include <gradus/core/nearest.h>
#include <gradus/trainers/distillation.h>
#include <gradus/trainers/dpo.h>
#include <gradus/trainers/grpo.h>
#include <gradus/trainers/kto.h>
#include <gradus/trainers/on_policy_distillation.h>
#include <gradus/trainers/registry.h>
#include <gradus/trainers/reward.h>
#include <gradus/trainers/rloo.h>
#include <gradus/trainers/seq2seq.h>
#include <gradus/trainers/sft.h>

namespace gradus {
namespace {

// The labels are a teacher's probabilities. A task with a teacher makes its trainer itself.
std::unique_ptr<Trainer> distillation_without_teacher(TrainerOptions options,
                                                      const TrainerArguments& arguments) {
  return std::make_unique<DistillationTrainer>(DistillationTrainerOptions{
      .model = std::move(options.model),
      .args = arguments.as<DistillationArguments>(),
      .data_collator = std::move(options.data_collator),
      .train_dataset = std::move(options.train_dataset),
      .eval_dataset = std::move(options.eval_dataset),
      .processing_class = std::move(options.processing_class),
      .model_init = std::move(options.model_init),
      .compute_loss_func = std::move(options.compute_loss_func),
      .compute_metrics = std::move(options.compute_metrics),
      .callbacks = std::move(options.callbacks),
      .optimizers = std::move(options.optimizers),
      .optimizer_factory = std::move(options.optimizer_factory),
      .preprocess_logits_for_metrics = std::move(options.preprocess_logits_for_metrics)});
}

// A trainer of trl's, whose options `make_options` makes.
template <class TrainerClass, class Config, auto make_options>
TrainerEntry trl_entry(std::string name) {
  return {std::move(name), [] { return std::make_unique<ArgumentsOf<Config>>(); },
          [](TrainerOptions options, const TrainerArguments& arguments) {
            return std::make_unique<TrainerClass>(
                make_options(std::move(options), arguments.as<Config>()));
          }};
}

// Rewards and teachers do not fit into the options of all trainers: tasks that have them make their
// trainer themselves.
template <class TrainerClass, class Options, class Config>
TrainerEntry rollout_trainer_entry(const char* name) {
  return {name, [] { return std::make_unique<ArgumentsOf<Config>>(); },
          [](TrainerOptions options, const TrainerArguments& arguments) {
            Options given;
            given.model = std::move(options.model);
            given.args = arguments.as<Config>();
            given.train_dataset = std::move(options.train_dataset);
            given.eval_dataset = std::move(options.eval_dataset);
            given.processing_class = std::move(options.processing_class);
            given.callbacks = std::move(options.callbacks);
            given.optimizers = std::move(options.optimizers);
            given.optimizer_factory = std::move(options.optimizer_factory);
            return std::make_unique<TrainerClass>(std::move(given));
          }};
}

Registry<TrainerEntry>& trainers() {
  static Registry<TrainerEntry> table(
      "register_trainer",
      {trainer_entry<Trainer, TrainingArguments>("Trainer"),
       trainer_entry<Seq2SeqTrainer, Seq2SeqTrainingArguments>("Seq2SeqTrainer"),
       {"DistillationTrainer",
        [] { return std::make_unique<ArgumentsOf<DistillationArguments>>(); },
        distillation_without_teacher},
       trl_entry<SFTTrainer, SFTConfig, sft_options>("SFTTrainer"),
       trl_entry<RewardTrainer, RewardConfig, reward_options>("RewardTrainer"),
       trl_entry<DPOTrainer, DPOConfig, dpo_options>("DPOTrainer"),
       trl_entry<KTOTrainer, KTOConfig, kto_options>("KTOTrainer"),
       rollout_trainer_entry<GRPOTrainer, GRPOTrainerOptions, GRPOConfig>("GRPOTrainer"),
       rollout_trainer_entry<RLOOTrainer, RLOOTrainerOptions, RLOOConfig>("RLOOTrainer"),
       rollout_trainer_entry<OnPolicyDistillationTrainer, OnPolicyDistillationTrainerOptions,
                             OnPolicyDistillationConfig>("OnPolicyDistillationTrainer")});
  return table;
}

}  // namespace

void register_trainer(TrainerEntry entry) {
  check_registration("register_trainer", entry.name, bool(entry.make_arguments));
  trainers().add(std::move(entry));
}

std::vector<std::string> trainer_names() { return trainers().names(); }

TrainerEntry find_trainer(const std::string& name) {
  if (auto entry = trainers().find(name)) return std::move(*entry);
  const auto names = trainers().names();
  throw Error("G-REG-3", ErrorKind::usage, "there is no trainer '" + name + "'",
              did_you_mean(name, names) + " Known are " + join_or(names) +
                  "; register_trainer adds one of your own.");
}

}  // namespace gradus
