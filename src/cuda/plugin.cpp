#include <gradus/version.h>

// libgradus_cuda.so: what of gradus needs CUDA. The library itself links LibTorch's CPU part only
// and loads this one when a GPU is there; loading it registers the kernels of cuda/kernels with
// torch's dispatcher.

/// The version of gradus this plugin was built with; the loader refuses another one.
extern "C" const char* gradus_cuda_version();
extern "C" __attribute__((visibility("default"))) const char* gradus_cuda_version() {
  return gradus::kVersion;
}
