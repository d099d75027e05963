#include <gradus/core/memory.h>
#include <stdlib.h>

#include <limits>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace gradus {

Error out_of_memory(const std::string& doing) {
  return {"G-MEM-1", ErrorKind::io, "memory ran out while " + doing,
          "Give the program more memory, or give it less to do: smaller files, batches or models. "
          "`ulimit -v` and the memory limit of a container count, too."};
}

#ifdef __GLIBC__
namespace {

// How glibc's malloc is told what to do from outside.
bool user_chose_malloc() {
  for (const char* variable :
       {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_"})
    if (::getenv(variable) != nullptr) return true;
  const char* tunables = ::getenv("GLIBC_TUNABLES");
  return tunables != nullptr && std::string(tunables).find("glibc.malloc.") != std::string::npos;
}

}  // namespace

bool keep_freed_memory() {
  if (user_chose_malloc()) return false;
  // Tensors above the first size are mapped one by one and always go back; the end of the heap
  // goes back when it is larger than the second.
  constexpr int kLargest = 1 << 30, kKept = std::numeric_limits<int>::max();
  return ::mallopt(M_MMAP_THRESHOLD, kLargest) == 1 && ::mallopt(M_TRIM_THRESHOLD, kKept) == 1;
}
#else
bool keep_freed_memory() { return false; }
#endif

}  // namespace gradus
