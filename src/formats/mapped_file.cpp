#include "formats/mapped_file.h"

#include <gradus/core/error.h>
#include <gradus/core/files.h>

#include <c10/core/CPUAllocator.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gradus {

std::shared_ptr<MappedFile> MappedFile::open(const std::filesystem::path& file) {
  const auto fail = [&](int code) {
    throw Error("G-IO-1", ErrorKind::io,
                "cannot read " + file.string() + ": " + system_reason(code),
                "Check that the path is right and may be read by this user.");
  };
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(errno);
  struct stat info{};
  int code = ::fstat(fd, &info) == 0 ? 0 : errno;
  if (code == 0 && S_ISDIR(info.st_mode)) code = EISDIR;
  if (code == 0 && !S_ISREG(info.st_mode)) code = EINVAL;
  std::shared_ptr<MappedFile> mapped(new MappedFile(file));
  if (code == 0 && info.st_size > 0) {
    void* address = ::mmap(nullptr, size_t(info.st_size), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (address == MAP_FAILED) {
      code = errno;
    } else {
      mapped->data_ = static_cast<char*>(address);
      mapped->size_ = size_t(info.st_size);
    }
  }
  ::close(fd);
  if (code != 0) fail(code);
  return mapped;
}

std::shared_ptr<MappedFile> MappedFile::from_bytes(std::string bytes, std::filesystem::path name) {
  std::shared_ptr<MappedFile> held(new MappedFile(std::move(name)));
  held->bytes_ = std::move(bytes);
  held->data_ = held->bytes_.data();
  held->size_ = held->bytes_.size();
  return held;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr && data_ != bytes_.data()) ::munmap(data_, size_);
}

at::Storage storage_over(const std::shared_ptr<MappedFile>& file, size_t offset, size_t size,
                         size_t alignment) {
  char* begin = file->data() + offset;
  if (size == 0 || reinterpret_cast<uintptr_t>(begin) % alignment != 0) {
    at::Storage copy(at::Storage::use_byte_size_t(), size, c10::GetCPUAllocator(),
                     /*resizable=*/false);
    if (size > 0) std::memcpy(copy.mutable_data(), begin, size);
    return copy;
  }
  auto* owner = new std::shared_ptr<MappedFile>(file);  // handed to the DataPtr, which deletes it
  at::DataPtr bytes(
      begin, owner, [](void* held) { delete static_cast<std::shared_ptr<MappedFile>*>(held); },
      at::kCPU);
  return at::Storage(at::Storage::use_byte_size_t(), size, std::move(bytes), /*allocator=*/nullptr,
                     /*resizable=*/false);
}

}  // namespace gradus
