#include "trackers/append_file.h"

#include <fcntl.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <unistd.h>

#include <cerrno>

namespace gradus {

bool AppendFile::open(const std::filesystem::path& file) {
  close();
  file_ = file;
  try {
    if (file.has_parent_path()) make_directory(file.parent_path());
  } catch (const Error& error) {
    log_warning(std::string("tracking is off: ") + error.what());
    return false;
  }
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) warn("open", errno);
  return descriptor_ >= 0;
}

void AppendFile::drop_partial_line() {
  if (descriptor_ < 0) return;
  off_t end = ::lseek(descriptor_, 0, SEEK_END);
  const off_t size = end;
  char last = '\n';
  while (end > 0 && ::pread(descriptor_, &last, 1, end - 1) == 1 && last != '\n') --end;
  if (end < size && ::ftruncate(descriptor_, end) != 0) warn("repair", errno);
}

void AppendFile::append(std::string_view bytes) {
  while (descriptor_ >= 0 && !bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(size_t(written));
    } else if (errno != EINTR) {
      warn("write", errno);
      close();
    }
  }
}

void AppendFile::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void AppendFile::warn(const char* doing, int code) {
  log_warning("cannot " + std::string(doing) + " " + file_.string() + ": " + system_reason(code) +
              "; training continues without this tracker");
}

}  // namespace gradus
