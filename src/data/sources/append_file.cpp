#include "data/sources/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "data/sources/source_errors.h"

namespace gradus::sources {

AppendFile::AppendFile(const std::filesystem::path& path, int64_t keep)
    : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) throw unwritable(path, errno);
  if (::ftruncate(descriptor_, keep) != 0 || ::lseek(descriptor_, keep, SEEK_SET) < 0) {
    const int code = errno;
    ::close(descriptor_);
    throw unwritable(path, code);
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
    if (n < 0) throw unwritable(path_, errno);
    done += size_t(n);
  }
  buffer_.clear();
}

void AppendFile::sync() {
  flush();
  if (::fdatasync(descriptor_) != 0) throw unwritable(path_, errno);
}

void AppendFile::overwrite(std::string_view bytes) {
  flush();
  if (::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()))
    throw unwritable(path_, errno);
}

}  // namespace gradus::sources
