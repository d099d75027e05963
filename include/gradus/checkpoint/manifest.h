#pragma once

#include <gradus/formats/checksum.h>

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gradus {

/// `manifest.json`: every file of a checkpoint with size and checksum. It is written last, so a
/// folder that has one is complete unless it was damaged afterwards.
struct Manifest {
  /// Size and checksum of every file, by its name in the folder.
  std::map<std::string, WrittenFile> files;

  /// The text of manifest.json.
  std::string to_text() const;
  /// Throws `Error` G-CKPT-2 when it is not a manifest of a version known here.
  static Manifest read(const std::filesystem::path& file);
};

/// What is wrong with a checkpoint.
struct CheckpointReport {
  bool has_manifest = false;          ///< false for one that Python wrote
  std::vector<std::string> problems;  ///< one sentence each; empty means complete
  /// What the manifest says of each file.
  std::map<std::string, WrittenFile> files;
  /// Whether nothing is missing or damaged.
  bool complete() const { return problems.empty(); }
};

/// Quick looks at sizes only; full also reads every file and compares checksums.
enum class Verify { quick, full };

/// Checks a checkpoint folder against its manifest. One without (Python's) must have weights and
/// trainer_state.json, and no file of it may be empty or cut short: the headers of weights and of
/// torch files are compared with the sizes of the files, and JSON must parse.
CheckpointReport verify_checkpoint(const std::filesystem::path& directory, Verify depth);

}  // namespace gradus
