#include "kernels/recorded_random.h"

#include <torch/library.h>

namespace gradus::kernels {
namespace {

int64_t no_place(const torch::Tensor&) { return -1; }
void no_way_there(const torch::Tensor& like, int64_t) { TORCH_CHECK(false, "gradus set_recorded_random_place: nothing is recorded on ", like.device()); }

}  // namespace

std::optional<uint64_t> recorded_random_place(const torch::Tensor& like) {
  static const auto call = c10::Dispatcher::singleton().findSchemaOrThrow("gradus::recorded_random_place", "").typed<int64_t(const torch::Tensor&)>();
  const auto place = call.call(like);
  return place < 0 ? std::nullopt : std::optional(static_cast<uint64_t>(place));
}

void set_recorded_random_place(const torch::Tensor& like, uint64_t place) {
  static const auto call = c10::Dispatcher::singleton().findSchemaOrThrow("gradus::set_recorded_random_place", "").typed<void(const torch::Tensor&, int64_t)>();
  call.call(like, static_cast<int64_t>(place));
}

}  // namespace gradus::kernels

TORCH_LIBRARY_FRAGMENT(gradus, library) {
  library.def("recorded_random_place(Tensor like) -> int");
  library.def("set_recorded_random_place(Tensor like, int place) -> ()");
}

TORCH_LIBRARY_IMPL(gradus, CompositeExplicitAutograd, library) {
  library.impl("recorded_random_place", gradus::kernels::no_place);
  library.impl("set_recorded_random_place", gradus::kernels::no_way_there);
}
