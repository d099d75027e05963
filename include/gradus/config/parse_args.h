#pragma once

#include <gradus/config/trainer_arguments.h>

namespace gradus {

/// The options of a program's command line over `defaults`, resolved: the flags of `gradus train`,
/// and a config file.
///
/// The one function of the library that may end the process: `--help` is printed to stdout (exit
/// code 0), what is wrong with the line to stderr (exit code 2). Use `OptionSet` to parse without
/// that, or with further options of the program.
TrainingArguments parse_args(int argc, const char* const* argv, TrainingArguments defaults = {});

/// The same into `arguments`, whatever its struct is.
void parse_args_into(TrainerArguments& arguments, int argc, const char* const* argv);

/// The same for a trainer with arguments of its own; its flags come after the common ones.
///
///     const auto args = gradus::parse_args<gradus::Seq2SeqTrainingArguments>(argc, argv);
template <class Arguments>
Arguments parse_args(int argc, const char* const* argv, Arguments defaults = {}) {
  ArgumentsOf<Arguments> arguments(std::move(defaults));
  parse_args_into(arguments, argc, argv);
  return std::move(arguments.value);
}

}  // namespace gradus
