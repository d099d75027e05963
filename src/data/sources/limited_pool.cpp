#ifdef GRADUS_WITH_ARROW

#include "data/sources/limited_pool.h"

#include <gradus/core/error.h>

#include "data/sources/source_errors.h"

namespace gradus::sources {

LimitedPool::LimitedPool(std::filesystem::path file, const LoadOptions& options)
    : arrow::ProxyMemoryPool(arrow::default_memory_pool()), file_(std::move(file)) {
  std::error_code ignored;
  const auto size = std::filesystem::file_size(file_, ignored);
  size_ = ignored ? 0 : int64_t(size);
  limit_ = expansion_limit(size_, options);
}

arrow::Status LimitedPool::Allocate(int64_t size, int64_t alignment, uint8_t** out) {
  ARROW_RETURN_NOT_OK(admit(size));
  return ProxyMemoryPool::Allocate(size, alignment, out);
}

arrow::Status LimitedPool::Reallocate(int64_t old_size, int64_t new_size, int64_t alignment,
                                      uint8_t** pointer) {
  ARROW_RETURN_NOT_OK(admit(new_size - old_size));
  return ProxyMemoryPool::Reallocate(old_size, new_size, alignment, pointer);
}

arrow::Status LimitedPool::admit(int64_t more) {
  if (more <= limit_ - bytes_allocated()) return arrow::Status::OK();
  refused_ = true;
  return arrow::Status::OutOfMemory("more than max_expansion allows");
}

void LimitedPool::check() const {
  if (refused_) throw refusal();
}

Error LimitedPool::refusal() const { return expands_too_far(file_, size_, limit_); }

}  // namespace gradus::sources

#endif
