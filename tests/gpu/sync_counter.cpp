// Counts the calls that make the host wait for a GPU. Preloaded (LD_PRELOAD) by the tests that
// expect none.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>

namespace {

std::atomic<long> waits{0};

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

/// Waits since the process began.
long gradus_sync_count();
__attribute__((visibility("default"))) long gradus_sync_count() { return waits.load(); }

#define GRADUS_COUNT(name, parameters, arguments)              \
  int name parameters;                                         \
  __attribute__((visibility("default"))) int name parameters { \
    using F = int(*) parameters;                               \
    static const F original = next<F>(#name);                  \
    ++waits;                                                   \
    return original arguments;                                 \
  }

GRADUS_COUNT(cudaDeviceSynchronize, (), ())
GRADUS_COUNT(cudaStreamSynchronize, (void* stream), (stream))
GRADUS_COUNT(cudaEventSynchronize, (void* event), (event))
GRADUS_COUNT(cudaMemcpy, (void* to, const void* from, size_t size, int kind),
             (to, from, size, kind))
GRADUS_COUNT(cudaFree, (void* memory), (memory))
GRADUS_COUNT(cudaFreeHost, (void* memory), (memory))
GRADUS_COUNT(cuCtxSynchronize, (), ())
GRADUS_COUNT(cuStreamSynchronize, (void* stream), (stream))
GRADUS_COUNT(cuEventSynchronize, (void* event), (event))

}  // extern "C"
