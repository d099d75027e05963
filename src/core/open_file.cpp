#include "core/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/file_errors.h"

namespace gradus {
namespace {

const char* kind_of_file(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "no regular file";
}

void check_regular(const std::filesystem::path& file, mode_t mode) {
  if (S_ISREG(mode)) return;
  if (S_ISDIR(mode)) throw cannot_read(file, EISDIR);
  throw Error("G-IO-1", ErrorKind::io,
              "cannot read " + file.string() + ": it is " + kind_of_file(mode) +
                  ", expected a regular file",
              "Write what it holds to a file, and name that.");
}

}  // namespace

void check_regular_file(const std::filesystem::path& file) {
  struct stat info{};
  if (::stat(file.c_str(), &info) != 0) throw cannot_read(file, errno);
  check_regular(file, info.st_mode);
}

int open_for_reading(const std::filesystem::path& file) {
  // Opening alone may wait for a writer, or rewind a tape: the kind is looked at before and, since
  // the name may have changed hands, after.
  struct stat info{};
  if (::stat(file.c_str(), &info) != 0) throw cannot_read(file, errno);
  check_regular(file, info.st_mode);
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) throw cannot_read(file, errno);
  if (::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode)) return descriptor;
  ::close(descriptor);
  check_regular(file, info.st_mode);
  throw cannot_read(file, EINVAL);
}

}  // namespace gradus
