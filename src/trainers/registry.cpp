#include "core/registry.h"

#include <gradus/core/nearest.h>
#include <gradus/trainers/ctc.h>
#include <gradus/trainers/distillation.h>
#include <gradus/trainers/dpo.h>
#include <gradus/trainers/grpo.h>
#include <gradus/trainers/kto.h>
#include <gradus/trainers/natural_questions.h>
#include <gradus/trainers/on_policy_distillation.h>
#include <gradus/trainers/registry.h>
#include <gradus/trainers/reward.h>
#include <gradus/trainers/rloo.h>
#include <gradus/trainers/seq2seq.h>
#include <gradus/trainers/sft.h>
#include <gradus/trainers/wav2vec2_pretraining.h>

namespace gradus {
namespace {

// A trainer whose options have further members. Tasks that fill them (rewards, a teacher) make
// their trainer themselves.
template <class TrainerClass, class Options>
TrainerEntry entry_of(std::string name) {
  return trainer_entry<TrainerClass, typename Options::Arguments, Options>(std::move(name));
}

// The functional trainer is no `Trainer`: its task runs it itself.
TrainerEntry functional_entry() {
  auto entry = trainer_entry<Trainer, NaturalQuestionsArguments>("functional::Trainer");
  entry.make = [](const TrainerOptions&, const TrainerArguments&) -> std::unique_ptr<Trainer> {
    throw Error("G-REG-3", ErrorKind::usage, "functional::Trainer is not made of TrainerOptions",
                "The task that names it sets PreparedTask::run and makes it there.");
  };
  return entry;
}

Registry<TrainerEntry>& trainers() {
  static Registry<TrainerEntry> table(
      "register_trainer",
      {trainer_entry<Trainer, TrainingArguments>("Trainer"),
       trainer_entry<Seq2SeqTrainer, Seq2SeqTrainingArguments>("Seq2SeqTrainer"),
       trainer_entry<CTCTrainer, TrainingArguments>("CTCTrainer"),
       trainer_entry<Wav2Vec2PreTrainer, Wav2Vec2PreTrainingArguments>("Wav2Vec2PreTrainer"),
       entry_of<DistillationTrainer, DistillationTrainerOptions>("DistillationTrainer"),
       entry_of<SFTTrainer, SFTTrainerOptions>("SFTTrainer"),
       entry_of<RewardTrainer, RewardTrainerOptions>("RewardTrainer"),
       entry_of<DPOTrainer, DPOTrainerOptions>("DPOTrainer"),
       entry_of<KTOTrainer, KTOTrainerOptions>("KTOTrainer"),
       entry_of<GRPOTrainer, GRPOTrainerOptions>("GRPOTrainer"),
       entry_of<RLOOTrainer, RLOOTrainerOptions>("RLOOTrainer"),
       entry_of<OnPolicyDistillationTrainer, OnPolicyDistillationTrainerOptions>(
           "OnPolicyDistillationTrainer"),
       functional_entry()});
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
