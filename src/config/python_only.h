#pragma once

#include <gradus/config/training_arguments.h>

namespace gradus::config {

/// Answers options that make sense only in Python or with hardware that is not here: one sentence
/// each. Throws G-CONF-5 where the run could not be what was asked; otherwise warns once in the
/// process.
void answer_python_only(const TrainingArguments& args);

}  // namespace gradus::config
