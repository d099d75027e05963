#include "tasks/functional_checkpoints.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/train/trainer.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "core/list_folder.h"

namespace gradus::tasks {
namespace fs = std::filesystem;
namespace {

std::optional<int64_t> whole_number(std::string_view digits) {
  int64_t value = 0;
  const auto* behind = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), behind, value);
  if (error != std::errc() || end != behind || value < 0) return std::nullopt;
  return value;
}

/// Reads "<save_dir>-e<epoch>-s<step>"; unset when the folder is called something else.
std::optional<FunctionalCheckpoint> read_name(const fs::path& path, const std::string& save_dir) {
  const auto name = path.filename().string();
  const auto prefix = save_dir + "-e";
  const auto middle = name.rfind("-s");
  if (!name.starts_with(prefix) || middle == std::string::npos || middle < prefix.size())
    return std::nullopt;
  const std::string_view all = name;
  const auto epoch = whole_number(all.substr(prefix.size(), middle - prefix.size()));
  const auto step = whole_number(all.substr(middle + 2));
  if (!epoch || !step) return std::nullopt;
  return FunctionalCheckpoint{path, *epoch, *step};
}

}  // namespace

std::vector<FunctionalCheckpoint> list_functional_checkpoints(const fs::path& folder,
                                                              const std::string& save_dir) {
  std::vector<FunctionalCheckpoint> found;
  for (const auto& path : list_folder(folder, Missing::is_empty)) {
    std::error_code unknown;
    auto checkpoint = read_name(path, save_dir);
    if (checkpoint && fs::is_directory(path, unknown)) found.push_back(std::move(*checkpoint));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(a.epoch, a.step) < std::tie(b.epoch, b.step);
  });
  return found;
}

std::optional<fs::path> checkpoint_to_resume(const TrainingArguments& args,
                                             const std::string& save_dir) {
  const fs::path folder = *args.output_dir;
  const auto all = list_functional_checkpoints(folder, save_dir);
  const auto resume = Resume::parse(args.resume_from_checkpoint.value_or(""));
  if (resume.kind() == Resume::Kind::path) {
    const auto path = expand_user(resume.path());
    if (!fs::is_directory(path))
      throw Error("G-CKPT-1", ErrorKind::checkpoint,
                  fmt::format("can't find a valid checkpoint at {}: there is no such folder",
                              path.string()),
                  fmt::format("Name a folder {}-e<epoch>-s<step>.", save_dir));
    return path;
  }
  if (resume.kind() == Resume::Kind::none) {
    if (!all.empty() && !args.overwrite_output_dir)
      throw Error("G-TASK-2", ErrorKind::usage,
                  fmt::format("{} already holds checkpoints (the newest is {})", folder.string(),
                              all.back().path.filename().string()),
                  "Continue with --resume_from_checkpoint last, start again with "
                  "--overwrite_output_dir, or name another --output_dir.");
    return std::nullopt;
  }
  if (!all.empty()) return all.back().path;
  if (resume.kind() == Resume::Kind::newest)
    throw Error("G-CKPT-1", ErrorKind::checkpoint,
                fmt::format("no valid checkpoint found in output directory ({})", folder.string()),
                "Start without --resume_from_checkpoint, or use --resume_from_checkpoint last, "
                "which starts from the beginning when there is none.");
  return std::nullopt;
}

}  // namespace gradus::tasks
