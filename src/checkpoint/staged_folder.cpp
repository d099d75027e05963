#include <fcntl.h>
#include <gradus/checkpoint/staged_folder.h>
#include <gradus/core/files.h>
#include <stdio.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace gradus {
namespace fs = std::filesystem;
namespace {

// Puts `temporary` where `final_name` is. A kill leaves the old folder or the new one, never none.
void replace_directory(const fs::path& temporary, const fs::path& final_name) {
  std::error_code ignored;
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_name.c_str(), RENAME_EXCHANGE) ==
      0) {
    sync_path(final_name.has_parent_path() ? final_name.parent_path() : fs::path("."));
    fs::remove_all(temporary, ignored);
    return;
  }
  // A file system that cannot exchange names.
  const fs::path old = temporary.string() + "-replaced-" + std::to_string(::getpid());
  fs::rename(final_name, old);
  publish_directory(temporary, final_name);
  fs::remove_all(old, ignored);
}

}  // namespace

StagedFolder::StagedFolder(const fs::path& final_path)
    : final_(final_path.has_filename() ? final_path : final_path.parent_path()) {
  if (final_.has_parent_path()) make_directory(final_.parent_path());
  temporary_ = final_.parent_path() /
               (".tmp-" + final_.filename().string() + "-" + std::to_string(::getpid()));
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
  make_directory(temporary_);
}

StagedFolder::StagedFolder(StagedFolder&& other) noexcept
    : final_(std::move(other.final_)), temporary_(std::exchange(other.temporary_, {})) {}

StagedFolder::~StagedFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void StagedFolder::publish() {
  for (const auto& entry : fs::recursive_directory_iterator(temporary_))
    if (entry.is_regular_file()) sync_path(entry.path());
  if (fs::exists(final_))
    replace_directory(temporary_, final_);
  else
    publish_directory(temporary_, final_);
  temporary_.clear();
}

}  // namespace gradus
