#include "core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "core/file_errors.h"
#include "core/mapped_reads.h"
#include "core/open_file.h"

namespace gradus {

MappedFile::MappedFile(const std::filesystem::path& path, Access access)
    : path_(path), descriptor_(open_for_reading(path)) {
  map(access);
}

MappedFile::MappedFile(int descriptor, const std::filesystem::path& path)
    : path_(path), descriptor_(descriptor) {
  map(Access::read_only);
}

MappedFile::MappedFile(std::string bytes, std::filesystem::path name)
    : path_(std::move(name)),
      bytes_(std::move(bytes)),
      data_(bytes_.data()),
      size_(bytes_.size()) {}

std::shared_ptr<MappedFile> MappedFile::from_bytes(std::string bytes, std::filesystem::path name) {
  return std::shared_ptr<MappedFile>(new MappedFile(std::move(bytes), std::move(name)));
}

void MappedFile::map(Access access) {
  const bool read_only = access == Access::read_only;
  struct stat info{};
  int code = ::fstat(descriptor_, &info) == 0 ? 0 : errno;
  if (code == 0 && S_ISDIR(info.st_mode)) code = EISDIR;
  if (code == 0 && !S_ISREG(info.st_mode)) code = EINVAL;
  if (code == 0 && info.st_size > 0) {
    void* address =
        ::mmap(nullptr, size_t(info.st_size), read_only ? PROT_READ : PROT_READ | PROT_WRITE,
               read_only ? MAP_SHARED : MAP_PRIVATE | MAP_NORESERVE, descriptor_, 0);
    if (address == MAP_FAILED) {
      code = errno;
    } else {
      data_ = static_cast<char*>(address);
      size_ = size_t(info.st_size);
      add_mapping(data_, size_, path_);
    }
  }
  if (read_only && code == 0) return;
  ::close(std::exchange(descriptor_, -1));
  if (code != 0) throw cannot_read(path_, code);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr && data_ != bytes_.data()) {
    remove_mapping(data_);
    ::munmap(data_, size_);
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::optional<size_t> MappedFile::shortened_to() const {
  if (descriptor_ < 0) return std::nullopt;
  constexpr std::chrono::steady_clock::duration kEvery = std::chrono::milliseconds(5);
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  if (now < next_check_.load(std::memory_order_relaxed)) return std::nullopt;
  struct stat info{};
  if (::fstat(descriptor_, &info) != 0) throw cannot_read(path_, errno);
  const bool shorter = size_t(info.st_size) < size_;
  next_check_.store(shorter ? 0 : now + kEvery.count(), std::memory_order_relaxed);
  return shorter ? std::optional(size_t(info.st_size)) : std::nullopt;
}

void MappedFile::release_pages() const {
  if (data_ != nullptr && descriptor_ >= 0) ::madvise(data_, size_, MADV_DONTNEED);
}

}  // namespace gradus
