#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/checkpoint/manifest.h>
#include <gradus/checkpoint/staged_folder.h>
#include <gradus/config/option_set.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/formats/sharded_folder.h>

#include <filesystem>

#include "cli.h"
#include "reference.h"

namespace gradus::cli {
namespace {

namespace fs = std::filesystem;

struct ConsolidateFlags {
  std::optional<std::string> output_dir = std::nullopt;
  std::string max_shard_size = "50GB";
};
constexpr OptionRow<ConsolidateFlags> kConsolidateRows[] = {
    {&ConsolidateFlags::output_dir, "output_dir", Group::output, any_value(),
     "The new folder. It must not exist."},
    {&ConsolidateFlags::max_shard_size, "max_shard_size", Group::output, any_value(),
     "Weights above this size are split into several files."},
};

constexpr const char* kConsolidateUsage =
    "usage: gradus consolidate CHECKPOINT --output_dir DIR [--max_shard_size 50GB]";

[[noreturn]] void refuse_consolidate(const std::string& message) {
  throw Error("G-CLI-4", ErrorKind::usage, message, kConsolidateUsage);
}

/// Whether a file of the checkpoint goes into the new folder as it is.
bool is_copied(const std::string& name) {
  return name != "manifest.json" && name.find(ShardedFolder::kPrefix) == std::string::npos;
}

void write_plain_checkpoint(const fs::path& from, const fs::path& to,
                            const ConsolidateFlags& flags) {
  StagedFolder folder(to);
  Manifest manifest;
  if (ShardedFolder::exists(from)) {
    const ShardOptions options{.max_shard_size = parse_shard_size(flags.max_shard_size)};
    for (const auto& file : write_consolidated(ShardedFolder(from), folder.path(), options))
      manifest.files[file.file_name] = file.written;
  }
  for (const auto& entry : fs::directory_iterator(from)) {
    const auto name = entry.path().filename().string();
    if (!entry.is_regular_file() || !is_copied(name)) continue;
    fs::copy_file(entry.path(), folder.path() / name);
    manifest.files[name] = file_checksum(folder.path() / name);
  }
  write_file_atomically(folder.path() / "manifest.json", manifest.to_text());
  folder.publish();
}

}  // namespace

std::vector<Flag> consolidate_flags() { return flags_of(kConsolidateRows); }

int consolidate(Words words) {
  ConsolidateFlags flags;
  OptionSet set;
  set.add(flags, std::span<const OptionRow<ConsolidateFlags>>(kConsolidateRows));
  std::vector<std::string> rest(words.begin(), words.end());
  std::string checkpoint;
  if (!rest.empty() && !rest.front().starts_with("-")) {
    checkpoint = rest.front();
    rest.erase(rest.begin());
  }
  if (set.parse(rest).help) {
    print_line(fmt::format(
        "{}\n\nCHECKPOINT was written in parts by the processes of a sharded run. The new folder "
        "holds the same as one process would have written it: the model, and what a run needs to "
        "continue.\n\n{}",
        kConsolidateUsage, set.help()));
    return 0;
  }
  if (checkpoint.empty()) refuse_consolidate("gradus consolidate needs a checkpoint");
  if (!flags.output_dir) refuse_consolidate("gradus consolidate needs --output_dir");
  const fs::path from = checkpoint, to = *flags.output_dir;
  if (!fs::is_directory(from))
    throw Error("G-CLI-5", ErrorKind::usage, from.string() + ": there is no such folder",
                "Name a checkpoint of a sharded run.");
  if (fs::exists(to)) refuse_consolidate(to.string() + " exists already");
  const auto report = verify_checkpoint(from, Verify::full);
  if (!report.complete())
    throw Error("G-CKPT-3", ErrorKind::checkpoint,
                fmt::format("{}: {}", from.string(), fmt::join(report.problems, "; ")),
                "Use a checkpoint that is complete: `gradus verify` names them.");
  write_plain_checkpoint(from, to, flags);
  print_line(fmt::format("{} holds the model and the state of the run", to.string()));
  return 0;
}

}  // namespace gradus::cli
