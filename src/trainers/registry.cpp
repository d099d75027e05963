#include "core/registry.h"

#include <gradus/core/nearest.h>
#include <gradus/trainers/distillation.h>
#include <gradus/trainers/dpo.h>
#include <gradus/trainers/kto.h>
#include <gradus/trainers/registry.h>
#include <gradus/trainers/reward.h>
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
       trl_entry<KTOTrainer, KTOConfig, kto_options>("KTOTrainer")});
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
