#include "train/fp8_device.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/device/gpu.h>
#include <gradus/kernels/form.h>

#include <algorithm>

namespace gradus {
namespace {

constexpr int kFp8Major = 8, kFp8Minor = 9;

}  // namespace

void check_fp8_device(torch::Device device) {
  if (kernels::current_form() == kernels::Form::fused) return;  // a test of the plain form
  const auto refuse = [](const std::string& received) {
    throw Error("G-GPU-2", ErrorKind::usage,
                fmt::format("fp8 needs a GPU of compute capability {}.{} or above and the CUDA "
                            "plugin, received {}",
                            kFp8Major, kFp8Minor, received),
                "Leave --fp8 out; gradus doctor shows what there is.");
  };
  if (!device.is_cuda()) refuse("the CPU");
  if (!device::has_plugin() || !kernels::have_cuda_kernels()) refuse("no plugin");
  const auto cards = device::gpu_infos();
  const auto place = size_t(std::max<int>(device.index(), 0));
  if (place >= cards.size()) return;
  const auto& card = cards[place];
  if (std::pair(card.major, card.minor) < std::pair(kFp8Major, kFp8Minor))
    refuse(fmt::format("{} with {}.{}", card.name, card.major, card.minor));
}

}  // namespace gradus
