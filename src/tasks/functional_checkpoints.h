#pragma once

#include <gradus/config/training_arguments.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace gradus::tasks {

/// A checkpoint of the functional trainer: a folder `<save_dir>-e<epoch>-s<step>`.
struct FunctionalCheckpoint {
  std::filesystem::path path;
  int64_t epoch = 0;
  int64_t step = 0;  ///< steps of the epoch
};

/// Those in `folder`, the oldest first. Empty when the folder does not exist.
std::vector<FunctionalCheckpoint> list_functional_checkpoints(const std::filesystem::path& folder,
                                                              const std::string& save_dir);

/// The checkpoint that `--resume_from_checkpoint` asks for; unset for a new run. Throws `Error`
/// G-TASK-2 when `output_dir` has checkpoints and nobody says what to do with them, and G-CKPT-1
/// when the one to resume from does not exist.
std::optional<std::filesystem::path> checkpoint_to_resume(const TrainingArguments& args,
                                                          const std::string& save_dir);

}  // namespace gradus::tasks
