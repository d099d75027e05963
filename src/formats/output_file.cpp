#include "formats/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/file_errors.h"

namespace gradus {
namespace {
constexpr size_t kGather = size_t{64} << 10;
}

OutputFile::OutputFile(std::filesystem::path file) : file_(std::move(file)) {
  // A file that is there is replaced, not cut short: tensors may be mapped views of it. A link is
  // neither followed nor replaced; a device is written to.
  constexpr int kFlags = O_WRONLY | O_NOFOLLOW | O_CLOEXEC;
  for (int attempt = 0; fd_ < 0; ++attempt) {
    struct stat info{};
    const bool is_there = ::lstat(file_.c_str(), &info) == 0;
    if (is_there && S_ISREG(info.st_mode)) ::unlink(file_.c_str());
    const bool is_other = is_there && !S_ISREG(info.st_mode);
    fd_ = ::open(file_.c_str(), is_other ? kFlags : kFlags | O_CREAT | O_EXCL, 0666);
    // Somebody may have put another file there in between.
    if (fd_ < 0 && (errno != EEXIST || attempt == 8)) throw cannot_write(file_, errno);
  }
  gathered_.reserve(kGather);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::fail(int code) const {
  throw cannot_write(file_, code, "The file is incomplete. ");
}

void OutputFile::write(const void* data, size_t size) {
  if (gathered_.size() + size > kGather) flush();
  if (size >= kGather) return write_through(static_cast<const char*>(data), size);
  gathered_.append(static_cast<const char*>(data), size);
}

void OutputFile::flush() {
  write_through(gathered_.data(), gathered_.size());
  gathered_.clear();
}

void OutputFile::write_through(const char* data, size_t size) {
  while (size > 0) {
    const auto n = ::write(fd_, data, std::min<size_t>(size, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(n < 0 ? errno : ENOSPC);
    data += n;
    size -= size_t(n);
  }
}

void OutputFile::close(Sync sync) {
  flush();
  if (sync == Sync::yes && ::fsync(fd_) != 0 && errno != EINVAL) fail(errno);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0 && errno != EINTR) fail(errno);
}

void ChecksummedSink::write(const void* data, size_t size) {
  // In pieces, so that the bytes are still in the cache when the system copies them.
  constexpr size_t kPiece = size_t{1} << 20;
  const auto* bytes = static_cast<const char*>(data);
  for (size_t done = 0; done < size;) {
    const auto n = std::min(kPiece, size - done);
    crc_.update(bytes + done, n);
    sink_(bytes + done, n);
    done += n;
  }
  size_ += size;
}

void ChecksummedSink::write(const void* data, size_t size, uint32_t checksum) {
  if (size > 0) sink_(data, size);
  crc_.append(checksum, size);
  size_ += size;
}

}  // namespace gradus
