#pragma once

#include <gradus/train/trainer.h>

namespace gradus {

/// The checkpoint to go on from, checked; empty for a fresh start.
/// Throws `Error` G-CKPT-1 when there is none, G-CKPT-3 when the one asked for is not complete.
std::filesystem::path resolve_resume(const Resume& resume, const std::filesystem::path& run_dir);

/// One warning for every option that differs from those the checkpoint was written with; the new ones are used.
void warn_about_changed_options(const TrainingArguments& args, const TrainerState& saved, const std::filesystem::path& checkpoint);

}  // namespace gradus
