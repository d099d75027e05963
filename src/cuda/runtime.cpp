// Streams, graphs and figures of the cards: the CUDA side of gradus/device/gpu.h.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <gradus/device/gpu.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <map>
#include <mutex>

#include "cuda/nccl.h"
#include "cuda/stream_order.h"

namespace gradus::device {
namespace {

using PoolId = decltype(at::cuda::graph_pool_handle());

class RecordedGraph : public Graph {
 public:
  explicit RecordedGraph(std::shared_ptr<const PoolId> pool) : pool_(std::move(pool)) {}
  // Thread-local: threads of the loader may go on to allocate page-locked memory meanwhile.
  void begin() { graph_.capture_begin(*pool_, cudaStreamCaptureModeThreadLocal); }
  void end() { graph_.capture_end(); }
  // After a failure: leave recording mode, keep nothing.
  void abandon() noexcept {
    try {
      graph_.capture_end();
    } catch (...) {
      cudaGetLastError();
    }
    try {
      graph_.reset();
    } catch (...) {
      cudaGetLastError();
    }
  }
  void replay() override { graph_.replay(); }

 private:
  std::shared_ptr<const PoolId> pool_;
  at::cuda::CUDAGraph graph_;
};

class OwnStream : public Scope {
 public:
  // What was issued before comes first, now and at the end.
  explicit OwnStream(torch::Device device)
      : guard_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {
    StreamOrder::between(guard_.original_stream(), guard_.current_stream());
  }
  ~OwnStream() override {
    try {
      StreamOrder::between(guard_.current_stream(), guard_.original_stream());
    } catch (...) {
      cudaGetLastError();
    }
  }

 private:
  c10::cuda::CUDAStreamGuard guard_;
};

class SyncAlarm : public Scope {
 public:
  SyncAlarm() : before_(c10::cuda::warning_state().get_sync_debug_mode()) {
    c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
  }
  ~SyncAlarm() override { c10::cuda::warning_state().set_sync_debug_mode(before_); }

 private:
  c10::cuda::SyncDebugMode before_;
};

class Plugin : public CudaPlugin {
 public:
  std::vector<GpuInfo> gpus() const override {
    std::vector<GpuInfo> found;
    int driver = 0;
    C10_CUDA_CHECK(cudaDriverGetVersion(&driver));
    for (int i = 0; i < int(c10::cuda::device_count()); ++i) {
      const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(i));
      cudaDeviceProp properties{};
      C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, i));
      size_t free = 0, total = 0;
      C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
      found.push_back({properties.name, int64_t(total), int64_t(free), properties.major,
                       properties.minor, properties.multiProcessorCount, driver});
    }
    return found;
  }

  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    // torch gives a pool up with its last graph; its name cannot be used again.
    auto pool = pool_.lock();
    if (!pool) pool_ = pool = std::make_shared<const PoolId>(at::cuda::graph_pool_handle());
    auto generator =
        at::globalContext().defaultGenerator(at::Device(at::kCUDA, c10::cuda::current_device()));
    const auto before = generator.clone();
    auto graph = std::make_unique<RecordedGraph>(std::move(pool));
    try {
      graph->begin();
      work();
      graph->end();
    } catch (...) {
      graph->abandon();
      const std::scoped_lock lock(generator.mutex());
      generator.graphsafe_set_state(
          before);  // a recording that failed leaves the generator believing in it
      throw;
    }
    return graph;
  }

  std::unique_ptr<Scope> own_stream(torch::Device device) override {
    return std::make_unique<OwnStream>(device);
  }
  std::unique_ptr<Scope> sync_alarm() override { return std::make_unique<SyncAlarm>(); }

  std::vector<torch::Tensor> upload(const std::vector<torch::Tensor>& tensors,
                                    torch::Device device) override {
    const auto compute = c10::cuda::getCurrentCUDAStream(device.index());
    const auto copies = copy_stream(device.index());
    std::vector<torch::Tensor> moved;
    moved.reserve(tensors.size());
    bool any = false;
    {
      const c10::cuda::CUDAStreamGuard guard(copies);
      for (const auto& tensor : tensors) {
        if (!tensor.defined() || !tensor.is_cpu()) {
          moved.push_back(tensor);
          continue;
        }
        const auto staged = tensor.is_pinned() ? tensor : tensor.pin_memory();
        auto copy = staged.to(device, /*non_blocking=*/true);
        copy.record_stream(compute);
        moved.push_back(std::move(copy));
        any = true;
      }
    }
    if (any) StreamOrder::between(copies, compute);
    return moved;
  }

  c10::intrusive_ptr<c10d::Backend> nccl_group(const NcclOptions& options) override {
    return make_nccl_group(options);
  }

 private:
  c10::cuda::CUDAStream copy_stream(c10::DeviceIndex device) {
    const std::scoped_lock lock(mutex_);
    const auto found = copy_streams_.find(device);
    if (found != copy_streams_.end()) return found->second;
    return copy_streams_
        .emplace(device, c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device))
        .first->second;
  }

  std::mutex mutex_;
  std::map<c10::DeviceIndex, c10::cuda::CUDAStream> copy_streams_;
  std::weak_ptr<const PoolId> pool_;  // held by the graphs
};

}  // namespace
}  // namespace gradus::device

extern "C" gradus::device::CudaPlugin* gradus_cuda_plugin(int interface_version);
extern "C" __attribute__((visibility("default"))) gradus::device::CudaPlugin* gradus_cuda_plugin(
    int interface_version) {
  if (interface_version != gradus::device::CudaPlugin::kInterface) return nullptr;
  static auto* const plugin =
      new gradus::device::Plugin();  // never destroyed: at exit the driver may be gone before it
  return plugin;
}
