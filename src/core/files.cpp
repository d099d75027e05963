#include <fcntl.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "core/file_errors.h"
#include "core/open_file.h"
#include "core/open_folder.h"
#include "core/temporary_name.h"
#include "core/write_all.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

// Whether a name is a link into /proc/self/fd, as /dev/stdout is. A file that the output goes to
// lies behind it, but renaming another one there would replace the link of the whole system.
bool leads_to_open_file(fs::path path) {
  constexpr int kMostLinks = 8;
  std::error_code failed;
  for (int i = 0; i < kMostLinks; ++i) {
    if (!fs::is_symlink(fs::symlink_status(path, failed))) return false;
    const auto folder =
        fs::canonical(path.has_parent_path() ? path.parent_path() : fs::path("."), failed);
    if (failed) return false;
    if (folder.string().starts_with("/proc/")) return true;
    path = folder / fs::read_symlink(path, failed);
    if (failed) return false;
  }
  return false;
}

// The standard output or error that `file` is, ready for writing; -1: neither.
int standard_output_at(const fs::path& file) {
  struct stat named{}, output{};
  if (::stat(file.c_str(), &named) != 0) return -1;
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
    if (::fstat(fd, &output) == 0 && named.st_dev == output.st_dev &&
        named.st_ino == output.st_ino && (::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY)
      return fd;
  return -1;
}

// Flushes the entry of `path` in its folder. A folder that may be written to and not be read cannot
// be synced.
void sync_parent_folder(const fs::path& path) {
  const auto parent = path.parent_path();
  const Descriptor folder(::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_CLOEXEC));
  if (folder.is_open() ? ::fsync(folder.get()) != 0 && errno != EINVAL : errno != EACCES)
    throw cannot_write(path, errno);
}

// Why `directory` is not a folder after all; `code` is what the system said, if anything.
std::string why_not_a_folder(const fs::path& directory, const std::error_code& code) {
  std::error_code ignored;
  for (auto place = directory; !place.empty(); place = place.parent_path()) {
    const auto itself = fs::symlink_status(place, ignored);
    const auto target = fs::status(place, ignored);
    if (fs::is_symlink(itself) && !fs::exists(target))
      return "the link " + place.string() + " leads to " +
             fs::read_symlink(place, ignored).string() + ", which does not exist";
    if (fs::exists(target) && !fs::is_directory(target)) return place.string() + " is a file";
    if (fs::exists(itself) || place == place.parent_path()) break;
  }
  return code ? code.message() : "it was removed at once";
}

}  // namespace

Error cannot_read(const fs::path& file, int code) {
  return {"G-IO-1", ErrorKind::io, "cannot read " + file.string() + ": " + system_reason(code),
          "Check that the path is right and may be read by this user."};
}

Error cannot_write(const fs::path& file, int code, const std::string& before) {
  if (code == ELOOP)
    return {"G-IO-2", ErrorKind::io,
            "cannot write " + file.string() + ": a symbolic link has this name",
            before +
                "gradus does not write through links. Remove the link, or name the file it "
                "leads to."};
  return {"G-IO-2", ErrorKind::io, "cannot write " + file.string() + ": " + system_reason(code),
          before + "Check free space, quotas and permissions of the folder."};
}

std::string system_reason(int code) { return std::generic_category().message(code); }

std::string read_file(const fs::path& file) {
  const Descriptor in(open_for_reading(file));
  struct stat info{};
  if (::fstat(in.get(), &info) != 0) throw cannot_read(file, errno);
  std::string content;
  char buffer[1 << 16];
  content.reserve(size_t(info.st_size));
  for (;;) {
    const auto n = ::read(in.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw cannot_read(file, errno);
    if (n == 0) return content;
    content.append(buffer, size_t(n));
  }
}

void write_file_atomically(const fs::path& file, std::string_view content) {
  const auto name = file.filename().string(), temporary = temporary_name(name);
  const auto parent = file.parent_path();
  const Descriptor folder(
      ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto fail = [&](int code) {
    ::unlinkat(folder.get(), temporary.c_str(), 0);
    throw cannot_write(file, code, kNothingChanged);
  };
  if (!folder.is_open()) throw cannot_write(file, errno, kNothingChanged);
  {
    const Descriptor out(::openat(folder.get(), temporary.c_str(),
                                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!out.is_open()) throw cannot_write(file, errno, kNothingChanged);
    if (!write_all(out.get(), content) || ::fsync(out.get()) != 0) fail(errno);
  }
  if (::renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) != 0) fail(errno);
  if (::fsync(folder.get()) != 0 && errno != EINVAL) throw cannot_write(file, errno);
}

bool write_named_file(const fs::path& file, std::string_view content) {
  std::error_code unknown;
  const auto there = fs::status(file, unknown);
  const bool is_ordinary =
      !fs::exists(there) || fs::is_regular_file(there) || fs::is_directory(there);
  if (is_ordinary && !leads_to_open_file(file)) {
    write_file_atomically(file, content);
    return true;
  }
  // A file that is opened anew has a place of its own: what is printed next would lie over it.
  const int output = standard_output_at(file);
  const Descriptor out(output >= 0 ? ::dup(output)
                                   : ::open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!out.is_open() || !write_all(out.get(), content)) throw cannot_write(file, errno);
  return false;
}

void make_directory(const fs::path& directory) {
  std::error_code code, unknown;
  std::vector<fs::path> created;
  for (auto place = directory; !place.empty() && !fs::exists(place, unknown);
       place = place.parent_path())
    created.push_back(place);
  fs::create_directories(directory, code);
  if (!code && fs::is_directory(directory, unknown)) {
    // Without this a power cut may take the folder, with everything that was synced in it.
    for (const auto& place : created) sync_parent_folder(place);
    return;
  }
  const bool is_file = fs::exists(directory, unknown) && !fs::is_directory(directory, unknown);
  throw Error("G-IO-3", ErrorKind::io,
              "cannot create the folder " + directory.string() + ": " +
                  (is_file ? "a file of that name exists" : why_not_a_folder(directory, code)),
              is_file ? "Name another folder, or move the file away."
                      : "Check the path and the permissions of its parent folder.");
}

void sync_path(const fs::path& path) {
  const Descriptor target(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!target.is_open() || (::fsync(target.get()) != 0 && errno != EINVAL))
    throw cannot_write(path, errno, kNothingChanged);
}

void publish_directory(const fs::path& temporary, const fs::path& final_name) {
  sync_path(temporary);
  move_file(temporary, final_name);
  sync_path(final_name.has_parent_path() ? final_name.parent_path() : fs::path("."));
}

void move_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw cannot_write(to, errno, kNothingChanged);
}

fs::path expand_user(const fs::path& path) {
  const auto text = path.string();
  if (text != "~" && !text.starts_with("~/")) return path;
  const char* home = std::getenv("HOME");
  return home == nullptr ? path : fs::path(home + text.substr(1));
}

}  // namespace gradus
