#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string>

namespace gradus {

/// The bytes of a file in memory: mapped privately, so that writes stay in this process.
/// Thread-safety: the bytes belong to whoever made tensors of them; the object itself does not
/// change.
class MappedFile {
 public:
  /// Throws G-IO-1.
  static std::shared_ptr<MappedFile> open(const std::filesystem::path& file);
  /// Bytes that are already in memory, under a name for messages.
  static std::shared_ptr<MappedFile> from_bytes(std::string bytes, std::filesystem::path name);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const char* data() const { return data_; }
  char* data() { return data_; }
  size_t size() const { return size_; }
  std::string name() const { return name_.string(); }

 private:
  explicit MappedFile(std::filesystem::path name) : name_(std::move(name)) {}

  std::filesystem::path name_;
  char* data_ = nullptr;
  size_t size_ = 0;
  std::string bytes_;  // when not mapped
};

/// A storage over `size` bytes from `offset` that keeps the file mapped. Copied when the bytes are
/// not aligned to `alignment`. The caller has checked the range.
at::Storage storage_over(const std::shared_ptr<MappedFile>& file, size_t offset, size_t size,
                         size_t alignment);

}  // namespace gradus
