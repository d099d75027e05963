// The CUDA side of kernels/recorded_random.h.
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <torch/library.h>

namespace gradus::cuda {
namespace {

int64_t recorded_random_place_of(const at::Tensor& like) {
  auto generator = at::cuda::detail::getDefaultCUDAGenerator(like.device().index());
  const std::scoped_lock lock(generator.mutex());
  const auto next =
      at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(/*increment=*/0);
  return next.captured_ ? static_cast<int64_t>(next.offset_intragraph_) : -1;
}

}  // namespace
}  // namespace gradus::cuda

TORCH_LIBRARY_IMPL(gradus, CUDA, library) {
  library.impl("recorded_random_place", gradus::cuda::recorded_random_place_of);
}
