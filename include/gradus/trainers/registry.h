#pragma once

#include <gradus/config/trainer_arguments.h>
#include <gradus/train/trainer.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

/// The table of trainers: which trainer classes there are, and which arguments each one takes.
///
/// A trainer that the command line should offer needs a row here and a task that names it. In C++ a
/// trainer works without one. docs/dev/new-trainer.md shows the whole way.
namespace gradus {

/// One row of the table of trainers.
struct TrainerEntry {
  /// The name of the class: "Seq2SeqTrainer". Tasks name their trainer by it.
  std::string name;
  /// Makes its arguments, with their defaults. The command line has a flag for each of them.
  std::function<std::unique_ptr<TrainerArguments>()> make_arguments = nullptr;
  /// Makes the trainer. `arguments` came from `make_arguments` and takes the place of
  /// `options.args`.
  std::function<std::unique_ptr<Trainer>(TrainerOptions options, const TrainerArguments& arguments)>
      make = nullptr;
};

/// `options` for a trainer with arguments of its own: all members that both have but `args`, which
/// is replaced by `arguments`.
template <class Options>
Options with_arguments(const TrainerOptions& options, typename Options::Arguments arguments) {
  auto given = convert_options<Options>(options);
  given.args = std::move(arguments);
  return given;
}

/// The row of a trainer class that is made from `Options`: a `TrainerOptionsWith<Arguments>`, or a
/// struct with further members, which stay unset here.
template <class TrainerClass, class Arguments, class Options = TrainerOptionsWith<Arguments>>
TrainerEntry trainer_entry(std::string name) {
  return {std::move(name), [] { return std::make_unique<ArgumentsOf<Arguments>>(); },
          [](TrainerOptions options, const TrainerArguments& arguments) {
            return std::make_unique<TrainerClass>(
                with_arguments<Options>(options, arguments.as<Arguments>()));
          }};
}

/// Adds a trainer. From then on tasks may name it, and `gradus options --markdown` lists what it
/// adds to the options of `TrainingArguments`.
///
/// Call it before the first task is made, from main() or while static objects are set up.
/// Thread-safe. Throws `Error` G-REG-1 for a name that is taken, G-REG-2 for an entry that is not
/// complete.
void register_trainer(TrainerEntry entry);

/// The same for a class that is made from `TrainerOptionsWith<Arguments>`:
///
///     gradus::register_trainer<FocalTrainer, FocalArguments>("FocalTrainer");
template <class TrainerClass, class Arguments>
void register_trainer(const std::string& name) {
  register_trainer(trainer_entry<TrainerClass, Arguments>(name));
}

/// The names of all trainers: "Trainer", those of the library, then those registered.
std::vector<std::string> trainer_names();

/// The row of a trainer. Throws `Error` G-REG-3 for an unknown name, with those known.
TrainerEntry find_trainer(const std::string& name);

}  // namespace gradus
