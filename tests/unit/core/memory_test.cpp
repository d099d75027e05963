#include <gradus/core/memory.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace gradus {
namespace {

// Sanitizers have an allocator of their own.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/// Each case in a process of its own: there is no way back.
template <class Work>
void in_another_process(const Work& work) {
  EXPECT_EXIT(::_exit(work() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

bool freed_memory_stays() {
  constexpr size_t kBytes = size_t{64} << 20;
  const auto before = ::mallinfo2();
  void* block = ::malloc(kBytes);
  std::memset(block, 1, kBytes);
  const bool is_in_heap = ::mallinfo2().hblkhd == before.hblkhd;
  ::free(block);
  return is_in_heap && ::mallinfo2().fordblks >= kBytes;
}

TEST(KeepFreedMemory, LeavesTensorsInTheHeap) {
  for (const char* name : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_",
                           "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES"})
    if (::getenv(name) != nullptr) GTEST_SKIP() << name << " is set";
  in_another_process([] { return !freed_memory_stays(); });
  in_another_process([] { return keep_freed_memory() && freed_memory_stays(); });
}

TEST(KeepFreedMemory, DoesNothingWhereTheUserChose) {
  in_another_process([] {
    ::setenv("MALLOC_TRIM_THRESHOLD_", "131072", 1);
    return !keep_freed_memory() && !freed_memory_stays();
  });
  in_another_process([] {
    ::setenv("GLIBC_TUNABLES", "glibc.rtld.nns=4:glibc.malloc.tcache_count=3", 1);
    return !keep_freed_memory() && !freed_memory_stays();
  });
}

#endif

TEST(OutOfMemory, SaysInWhichWork) {
  const auto fails = [] { throw std::bad_alloc(); };
  try {
    name_memory_errors([] { return std::string("reading a.jsonl"); }, fails);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-MEM-1");
    EXPECT_NE(std::string(error.what()).find("memory ran out while reading a.jsonl"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace gradus
