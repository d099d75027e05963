#pragma once

#include <gradus/config/option_set.h>
#include <gradus/config/training_arguments.h>

/// The option tables as text, for `gradus options`, and the table of `TrainingArguments`.
namespace gradus {

/// The table of every option of `TrainingArguments`, in the struct's order.
std::span<const OptionRow<TrainingArguments>> training_options();

/// What `gradus options` prints: every option with type, default and meaning.
std::string options_text();
/// What `gradus options --json` prints: one array, an object for each option.
std::string options_json();
/// The page docs/user/options.md.
std::string options_markdown();

}  // namespace gradus
