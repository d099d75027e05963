// The CUDA side of kernels/recorded_random.h.
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <torch/library.h>

namespace gradus::device {
namespace {

// What `increment` more numbers would begin with; captured_ says whether work is being recorded.
at::PhiloxCudaState advance_by(const at::Tensor& like, uint64_t increment) {
  auto generator = at::cuda::detail::getDefaultCUDAGenerator(like.device().index());
  const std::scoped_lock lock(generator.mutex());
  return at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(increment);
}

int64_t recorded_place(const at::Tensor& like) {
  const auto now = advance_by(like, 0);
  return now.captured_ ? static_cast<int64_t>(now.offset_intragraph_) : -1;
}

// The generator only goes forward; unsigned sums wrap around, which leads back. Should a torch refuse that, recording ends with its words and the step runs plainly.
void go_to_recorded_place(const at::Tensor& like, int64_t place) {
  const auto now = advance_by(like, 0);
  TORCH_CHECK(now.captured_, "gradus set_recorded_random_place: nothing is recorded on ", like.device());
  const auto distance = static_cast<uint64_t>(place) - now.offset_intragraph_;
  if (distance != 0) advance_by(like, distance);
}

}  // namespace
}  // namespace gradus::device

TORCH_LIBRARY_IMPL(gradus, CUDA, library) {
  library.impl("recorded_random_place", gradus::device::recorded_place);
  library.impl("set_recorded_random_place", gradus::device::go_to_recorded_place);
}
