#pragma once

#include <filesystem>
#include <memory>

namespace gradus {

class OpenFolder;

/// A folder that appears under its name only once it is complete.
///
/// Files are written into `path()`, a hidden folder `.tmp-NAME-PID-TOKEN` beside the final place.
/// The token is random, so that nobody can prepare the place. `publish` syncs the files and gives
/// the folder its name. A folder that is not published is removed with its object; one that a
/// killed process left behind is for `remove_unfinished`.
///
/// Both folders are opened once and renamed by descriptor: nothing else is published when somebody
/// exchanges the hidden folder.
/// Thread-safety: one thread at a time; it may move from one thread to another.
class StagedFolder {
 public:
  /// Creates the hidden folder, and the parent folder where that is missing. Throws `Error` G-IO-3.
  explicit StagedFolder(const std::filesystem::path& final_path);
  ~StagedFolder();
  /// The other object then has no folder.
  StagedFolder(StagedFolder&& other) noexcept;
  StagedFolder& operator=(StagedFolder&&) = delete;

  /// Where to write.
  const std::filesystem::path& path() const { return temporary_; }

  /// Syncs every file and gives the folder its final name. A folder, file or link that has this
  /// name already makes way in the same step, so that a kill leaves the old one or the new one.
  /// Throws `Error` G-IO-2.
  void publish();

 private:
  std::filesystem::path final_, temporary_;
  std::unique_ptr<OpenFolder> parent_, folder_;
};

}  // namespace gradus
