#include <gradus/checkpoint/staged_folder.h>
#include <gradus/core/files.h>

#include <cerrno>
#include <string>
#include <utility>

#include "core/file_errors.h"
#include "core/list_folder.h"
#include "core/open_folder.h"
#include "core/temporary_name.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

// What a folder holds first, then the folder that names it.
void sync_content(const fs::path& folder) {
  std::error_code code;
  for (const auto& path : list_folder(folder)) {
    const auto kind = fs::symlink_status(path, code).type();
    if (kind == fs::file_type::none) throw cannot_read(path, code.value());
    if (kind == fs::file_type::directory) sync_content(path);
    if (kind == fs::file_type::directory || kind == fs::file_type::regular) sync_path(path);
  }
}

// Gives `temporary` a name that something else has. A kill leaves the old or the new, never none;
// where the file system cannot exchange names, the old is left under a temporary name.
void replace_entry(const OpenFolder& parent, const std::string& temporary,
                   const std::string& final_name) {
  auto old = temporary;
  if (!parent.exchange(temporary, final_name)) {
    old = temporary_name(final_name);
    parent.rename(final_name, old);
    parent.rename(temporary, final_name);
  }
  parent.sync();
  std::error_code ignored;
  fs::remove_all(parent.path() / old, ignored);
}

}  // namespace

StagedFolder::StagedFolder(const fs::path& final_path)
    : final_(final_path.has_filename() ? final_path : final_path.parent_path()) {
  if (final_.has_parent_path()) make_directory(final_.parent_path());
  parent_ = std::make_unique<OpenFolder>(final_.parent_path());
  const auto name = temporary_name(final_.filename().string());
  folder_ = std::make_unique<OpenFolder>(OpenFolder::create(*parent_, name));
  temporary_ = folder_->path();
}

StagedFolder::StagedFolder(StagedFolder&& other) noexcept
    : final_(std::move(other.final_)),
      temporary_(std::exchange(other.temporary_, {})),
      parent_(std::move(other.parent_)),
      folder_(std::move(other.folder_)) {}

StagedFolder::~StagedFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void StagedFolder::publish() {
  sync_content(temporary_);
  folder_->sync();
  const auto temporary = temporary_.filename().string(), name = final_.filename().string();
  if (!parent_->holds(temporary, *folder_)) throw cannot_write(temporary_, ENOENT, kNothingChanged);
  if (parent_->contains(name)) {
    replace_entry(*parent_, temporary, name);
  } else {
    parent_->rename(temporary, name);
    parent_->sync();
  }
  temporary_.clear();
}

}  // namespace gradus
