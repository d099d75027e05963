#include "core/open_folder.h"

#include <fcntl.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/file_errors.h"

namespace gradus {
namespace fs = std::filesystem;

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

OpenFolder::OpenFolder(const fs::path& path)
    : path_(path),
      descriptor_(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!descriptor_.is_open()) throw cannot_write(path_, errno, kNothingChanged);
}

OpenFolder OpenFolder::create(const OpenFolder& parent, const std::string& name) {
  const auto path = parent.path_ / name;
  Descriptor made;
  if (::mkdirat(parent.descriptor(), name.c_str(), 0777) == 0)
    made = Descriptor(::openat(parent.descriptor(), name.c_str(),
                               O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!made.is_open())
    throw Error("G-IO-3", ErrorKind::io,
                "cannot create the folder " + path.string() + ": " + system_reason(errno),
                "Check the path and the permissions of its parent folder.");
  return {path, std::move(made)};
}

bool OpenFolder::contains(const std::string& name) const {
  struct stat info{};
  return ::fstatat(descriptor(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

bool OpenFolder::holds(const std::string& name, const OpenFolder& folder) const {
  struct stat entry{}, open{};
  return ::fstatat(descriptor(), name.c_str(), &entry, AT_SYMLINK_NOFOLLOW) == 0 &&
         ::fstat(folder.descriptor(), &open) == 0 && entry.st_dev == open.st_dev &&
         entry.st_ino == open.st_ino;
}

void OpenFolder::rename(const std::string& from, const std::string& to) const {
  if (::renameat(descriptor(), from.c_str(), descriptor(), to.c_str()) != 0)
    throw cannot_write(path_ / to, errno, kNothingChanged);
}

bool OpenFolder::exchange(const std::string& one, const std::string& other) const {
  return ::renameat2(descriptor(), one.c_str(), descriptor(), other.c_str(), RENAME_EXCHANGE) == 0;
}

void OpenFolder::remove(const std::string& name) const noexcept {
  ::unlinkat(descriptor(), name.c_str(), 0);
}

void OpenFolder::sync() const {
  if (::fsync(descriptor()) != 0 && errno != EINVAL)
    throw cannot_write(path_, errno, kNothingChanged);
}

}  // namespace gradus
