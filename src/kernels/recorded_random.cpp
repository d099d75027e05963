#include "kernels/recorded_random.h"

#include <torch/library.h>

namespace gradus::kernels {
namespace {

constexpr int64_t kNothingRecorded = -1;

int64_t place_without_plugin(const torch::Tensor&) { return kNothingRecorded; }

}  // namespace

std::optional<uint64_t> recorded_random_place(const torch::Tensor& like) {
  static const auto call = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("gradus::recorded_random_place", "")
                               .typed<int64_t(const torch::Tensor&)>();
  const auto place = call.call(like);
  return place == kNothingRecorded ? std::nullopt : std::optional(static_cast<uint64_t>(place));
}

}  // namespace gradus::kernels

TORCH_LIBRARY_FRAGMENT(gradus, library) {
  library.def("recorded_random_place(Tensor like) -> int");
}

TORCH_LIBRARY_IMPL(gradus, CompositeExplicitAutograd, library) {
  library.impl("recorded_random_place", gradus::kernels::place_without_plugin);
}
