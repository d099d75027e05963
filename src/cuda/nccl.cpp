#include "cuda/nccl.h"

#ifdef GRADUS_WITH_NCCL
// Without this the header of NCCL's group is empty.
#define USE_C10D_NCCL 1
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#endif

namespace gradus::device {

#ifdef GRADUS_WITH_NCCL

c10::intrusive_ptr<c10d::Backend> make_nccl_group(const NcclOptions& options) {
  const c10::cuda::CUDAGuard guard(options.device);
  const auto nccl = c10d::ProcessGroupNCCL::Options::create();
  nccl->timeout = options.timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(options.store, int(options.rank),
                                                     int(options.size), nccl);
}

#else

c10::intrusive_ptr<c10d::Backend> make_nccl_group(const NcclOptions&) { return nullptr; }

#endif

}  // namespace gradus::device
