#include "core/registry.h"

#include <gradus/core/nearest.h>
#include <gradus/trainers/registry.h>
#include <gradus/trainers/seq2seq.h>

namespace gradus {
namespace {

Registry<TrainerEntry>& trainers() {
  static Registry<TrainerEntry> table(
      "register_trainer",
      {trainer_entry<Trainer, TrainingArguments>("Trainer"),
       trainer_entry<Seq2SeqTrainer, Seq2SeqTrainingArguments>("Seq2SeqTrainer")});
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
