#include <fmt/format.h>
#include <gradus/device/gpu.h>
#include <gradus/device/runtime.h>

#include "train/trainer_parts.h"

namespace gradus {
namespace {

double gib(int64_t bytes) { return double(bytes) / double(1 << 30); }

}  // namespace

Error out_of_memory_error(torch::Device device, const std::string& what) {
  const auto use = device::memory_use(device);
  const auto cards = device::gpu_infos();
  const auto place = size_t(std::max<int>(device.index(), 0));
  const auto card =
      place < cards.size()
          ? fmt::format("; {} has {:.1f} GiB, {:.1f} of them free now", cards[place].name,
                        gib(cards[place].memory), gib(cards[place].free))
          : std::string();
  return Error(
      "G-GPU-1", ErrorKind::training,
      fmt::format("the GPU's memory ran out: the run held {:.1f} GiB when it stopped, {:.1f} at "
                  "most{} ({})",
                  gib(use.allocated), gib(use.peak), card, what.substr(0, what.find('\n'))),
      "Lower --per_device_train_batch_size and raise --gradient_accumulation_steps by the same "
      "factor, shorten the sequences, "
      "add --activation_memory_budget 0.5, --gradient_checkpointing or --bf16, or let "
      "--auto_find_batch_size look for a size that fits.\n"
      "The checkpoints written so far are complete: --resume_from_checkpoint last continues from "
      "the "
      "newest.");
}

}  // namespace gradus
