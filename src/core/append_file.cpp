#include "core/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "core/file_errors.h"

namespace gradus {

AppendFile::AppendFile(const std::filesystem::path& path, std::optional<int64_t> keep)
    : path_(path),
      descriptor_(
          ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) throw cannot_write(path, errno);
  if (keep && ::ftruncate(descriptor_, *keep) != 0) {
    const int code = errno;
    ::close(descriptor_);
    throw cannot_write(path, code);
  }
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::append(std::string_view bytes) {
  buffer_ += bytes;
  if (buffer_.size() >= size_t{4} << 20) flush();
}

void AppendFile::flush() {
  for (size_t done = 0; done < buffer_.size();) {
    const auto n = ::write(descriptor_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw cannot_write(path_, n < 0 ? errno : ENOSPC);
    done += size_t(n);
  }
  buffer_.clear();
}

void AppendFile::sync() {
  flush();
  if (::fdatasync(descriptor_) != 0) throw cannot_write(path_, errno);
}

void AppendFile::overwrite(std::string_view bytes) {
  flush();
  // With O_APPEND even pwrite writes at the end; the file itself stays the one that was opened.
  const int flags = ::fcntl(descriptor_, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor_, F_SETFL, flags & ~O_APPEND) != 0)
    throw cannot_write(path_, errno);
  int code = 0;
  for (size_t done = 0; done < bytes.size() && code == 0;) {
    const auto n = ::pwrite(descriptor_, bytes.data() + done, bytes.size() - done, off_t(done));
    if (n > 0)
      done += size_t(n);
    else if (n == 0 || errno != EINTR)
      code = n == 0 ? ENOSPC : errno;
  }
  if (::fcntl(descriptor_, F_SETFL, flags) != 0) throw cannot_write(path_, errno);
  if (code != 0) throw cannot_write(path_, code);
}

void AppendFile::drop_partial_line() {
  flush();
  const off_t size = ::lseek(descriptor_, 0, SEEK_END);
  off_t end = size;
  char last = '\n';
  while (end > 0 && ::pread(descriptor_, &last, 1, end - 1) == 1 && last != '\n') --end;
  if (end < size && ::ftruncate(descriptor_, end) != 0) throw cannot_write(path_, errno);
}

}  // namespace gradus
