#include "data/sources/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "data/sources/source_errors.h"

namespace gradus::sources {

MappedFile::MappedFile(const std::filesystem::path& path)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), path_(path) {
  if (descriptor_ < 0) throw unreadable(path, errno);
  map();
}

MappedFile::MappedFile(int descriptor, const std::filesystem::path& path)
    : descriptor_(descriptor), path_(path) {
  map();
}

void MappedFile::map() {
  struct stat info{};
  int code = 0;
  if (::fstat(descriptor_, &info) != 0) {
    code = errno;
  } else if (S_ISDIR(info.st_mode)) {
    code = EISDIR;
  } else if (info.st_size > 0) {
    size_ = info.st_size;
    void* address = ::mmap(nullptr, size_t(size_), PROT_READ, MAP_SHARED, descriptor_, 0);
    if (address == MAP_FAILED)
      code = errno;
    else
      data_ = static_cast<const uint8_t*>(address);
  }
  if (code != 0) {
    ::close(descriptor_);
    throw unreadable(path_, code);
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_t(size_));
  ::close(descriptor_);
}

void MappedFile::check_length() const {
  constexpr std::chrono::steady_clock::duration kEvery = std::chrono::milliseconds(5);
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  if (now < next_check_.load(std::memory_order_relaxed)) return;
  struct stat info{};
  if (::fstat(descriptor_, &info) != 0) throw unreadable(path_, errno);
  next_check_.store(info.st_size < size_ ? 0 : now + kEvery.count(), std::memory_order_relaxed);
  if (info.st_size < size_) throw cut_short(path_, size_, info.st_size);
}

void MappedFile::release_pages() const {
  if (data_ != nullptr) ::madvise(const_cast<uint8_t*>(data_), size_t(size_), MADV_DONTNEED);
}

int open_unnamed_file(const std::filesystem::path& folder) {
  const auto where = folder.empty() ? std::filesystem::temp_directory_path() : folder;
  int descriptor = ::open(where.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) {  // file systems without O_TMPFILE
    auto name = (where / "gradus-XXXXXX").string();
    descriptor = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor < 0) throw unwritable(where, errno);
    ::unlink(name.c_str());
  }
  return descriptor;
}

}  // namespace gradus::sources
