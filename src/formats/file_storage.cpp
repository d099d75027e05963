#include "formats/file_storage.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>

namespace gradus {

std::shared_ptr<MappedFile> map_for_tensors(const std::filesystem::path& file) {
  return std::make_shared<MappedFile>(file, MappedFile::Access::private_copy);
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
