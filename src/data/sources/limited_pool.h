#pragma once

#ifdef GRADUS_WITH_ARROW

#include <arrow/memory_pool.h>
#include <arrow/status.h>

#include <atomic>
#include <filesystem>

#include "data/sources/source_files.h"

namespace gradus::sources {

/// Memory for what is unpacked from one file, as much as `LoadOptions::max_expansion` allows.
///
/// It must outlive every array that was read with it.
/// Thread-safety: as Arrow's own pools.
class LimitedPool : public arrow::ProxyMemoryPool {
 public:
  LimitedPool(std::filesystem::path file, const LoadOptions& options);

  using arrow::MemoryPool::Allocate;
  using arrow::MemoryPool::Reallocate;
  arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t** out) override;
  arrow::Status Reallocate(int64_t old_size, int64_t new_size, int64_t alignment,
                           uint8_t** pointer) override;

  int64_t limit() const { return limit_; }
  /// Throws G-SRC-20 if more was asked for than the limit allows. Arrow reports such a refusal in
  /// several ways, so whoever meets a failure asks here first.
  void check() const;
  /// G-SRC-20 for this file.
  Error refusal() const;

 private:
  arrow::Status admit(int64_t more);

  std::filesystem::path file_;
  int64_t size_ = 0, limit_ = 0;
  std::atomic<bool> refused_ = false;
};

}  // namespace gradus::sources

#endif
