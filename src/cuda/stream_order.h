#pragma once

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

namespace gradus::device {

/// Order between streams without the host.
struct StreamOrder {
  /// Work issued on `second` from now on starts when what is on `first` now is done.
  static void between(c10::cuda::CUDAStream first, c10::cuda::CUDAStream second) {
    if (first == second) return;
    cudaEvent_t event = nullptr;
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    const auto recorded = cudaEventRecord(event, first);
    const auto waited = recorded == cudaSuccess ? cudaStreamWaitEvent(second, event, 0) : recorded;
    C10_CUDA_CHECK(cudaEventDestroy(event));  // freed by CUDA once it has happened
    C10_CUDA_CHECK(waited);
  }
};

}  // namespace gradus::device
