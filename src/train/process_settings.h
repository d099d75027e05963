#pragma once

#include <gradus/config/training_arguments.h>

namespace gradus {

/// Sets what the arguments say about the whole process: threads, who multiplies matrices, which
/// kernels may run. Random numbers are left alone.
void apply_process_settings(const TrainingArguments& args);

}  // namespace gradus
