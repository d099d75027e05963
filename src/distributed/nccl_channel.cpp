#include "distributed/nccl_channel.h"

#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdlib>
#include <set>
#include <utility>

namespace gradus {
namespace {

constexpr auto kWatch = std::chrono::seconds(2);

// The channels that are open. Never destroyed: channels may outlive everything else.
struct OpenChannels {
  std::mutex mutex;
  std::set<NcclChannel*> channels;
};

OpenChannels& open_channels() {
  static auto* const found = new OpenChannels();
  return *found;
}

void close_all() {
  auto& open = open_channels();
  const std::scoped_lock lock(open.mutex);
  for (auto* channel : open.channels) channel->close();
}

// Functions registered last run first: this is called when the driver is there.
void close_at_exit() {
  static const int registered = std::atexit(close_all);
  static_cast<void>(registered);
}

}  // namespace

NcclChannel::NcclChannel(const device::NcclOptions& options, std::function<bool()> somebody_gave_up)
    : device_(options.device), backend_(device::nccl_group(options)) {
  if (!backend_)
    throw Error("G-DIST-6", ErrorKind::usage,
                device::has_plugin()
                    ? "this build of the CUDA plugin has no NCCL: nccl.h was not "
                      "found when it was built"
                    : "NCCL needs libgradus_cuda.so, which is " + device::plugin_text(),
                "Install nvidia-nccl-cu13 beside torch and build the preset 'cuda' again, or use "
                "--ddp_backend gloo, which is slower, or --use_cpu.");
  // The first exchange connects; those after it can be recorded.
  auto first = torch::zeros({1}, torch::device(device_));
  std::vector<torch::Tensor> values{first};
  backend_->allreduce(values)->synchronize();
  static_cast<void>(first.item<float>());
  close_at_exit();
  {
    auto& open = open_channels();
    const std::scoped_lock lock(open.mutex);
    open.channels.insert(this);
  }
  if (options.size == 1) return;
  is_watched_ = true;
  watch_ = std::thread([this, ask = std::move(somebody_gave_up)] { watch(ask); });
}

NcclChannel::~NcclChannel() {
  {
    const std::scoped_lock lock(watch_mutex_);
    is_watched_ = false;
  }
  watch_ends_.notify_all();
  if (watch_.joinable()) watch_.join();
  {
    auto& open = open_channels();
    const std::scoped_lock lock(open.mutex);
    open.channels.erase(this);
  }
  close();
}

c10d::Backend& NcclChannel::backend() const {
  const std::scoped_lock lock(mutex_);
  if (is_ended_) throw std::runtime_error("the connection of the GPUs was closed");
  return *backend_;
}

void NcclChannel::abort() noexcept { end(End::abort); }
void NcclChannel::close() noexcept { end(End::finish); }

void NcclChannel::end(End how) noexcept {
  const std::scoped_lock lock(mutex_);
  if (std::exchange(is_ended_, true)) return;
  try {
    if (how == End::abort)
      backend_->abort();
    else
      backend_->shutdown();
  } catch (const std::exception& error) {
    log_debug(std::string("NCCL could not be closed: ") + error.what());
  }
}

void NcclChannel::watch(const std::function<bool()>& somebody_gave_up) {
  std::unique_lock lock(watch_mutex_);
  while (!watch_ends_.wait_for(lock, kWatch, [this] { return !is_watched_; })) {
    try {
      if (!somebody_gave_up()) continue;
    } catch (const std::exception&) {  // the store does not answer
      continue;
    }
    abort();
    return;
  }
}

}  // namespace gradus
