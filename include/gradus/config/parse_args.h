#pragma once

#include <gradus/config/training_arguments.h>

namespace gradus {

/// The options of a program's command line over `defaults`, resolved: the flags of `gradus train`,
/// and a config file.
///
/// The one function of the library that may end the process: `--help` is printed to stdout (exit
/// code 0), what is wrong with the line to stderr (exit code 2). Use `OptionSet` to parse without
/// that, or with options of your own.
TrainingArguments parse_args(int argc, const char* const* argv, TrainingArguments defaults = {});

/// The same with the sequence-to-sequence options.
Seq2SeqTrainingArguments parse_seq2seq_args(int argc, const char* const* argv,
                                            Seq2SeqTrainingArguments defaults = {});

}  // namespace gradus
