#pragma once

#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace gradus::device {

// What the plugin library libgradus_cuda.so adds to LibTorch's own CUDA part. All functions but
// `capture` also work without a GPU or without the plugin: `has_plugin()` is then false, `upload`
// is a plain copy, and the scopes are null.

/// A GPU of this machine.
struct GpuInfo {
  std::string name;         ///< For example "NVIDIA H100 80GB HBM3".
  int64_t memory = 0;       ///< Bytes on the card.
  int64_t free = 0;         ///< Bytes that no process uses.
  int major = 0;            ///< First part of the compute capability.
  int minor = 0;            ///< Second part of the compute capability.
  int multiprocessors = 0;  ///< Number of streaming multiprocessors.
  int driver = 0;           ///< CUDA version of the driver; 13000 is 13.0.
};

/// An effect that lasts while the object lives.
struct Scope {
  virtual ~Scope() = default;
};

/// Work on a GPU that was recorded once and can be run again with one launch.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Runs the recorded work on the current stream. Does not wait for it.
  virtual void replay() = 0;
};

/// What a group of processes with a GPU each is made of.
struct NcclOptions {
  c10::intrusive_ptr<c10d::Store> store;  ///< Where they meet. No other group may use it.
  int64_t rank = 0;                       ///< Which of them this is.
  int64_t size = 1;                       ///< How many there are.
  torch::Device device = torch::kCUDA;    ///< The GPU of this process.
  std::chrono::milliseconds timeout{};    ///< After this an exchange that hangs ends the process.
};

/// The plugin's interface, implemented in src/cuda, which needs nothing else of the library.
/// Programs call the functions below instead.
class CudaPlugin {
 public:
  /// Changes with this class, so that a plugin of another build is refused.
  static constexpr int kInterface = 2;

  virtual ~CudaPlugin() = default;
  /// See `gpu_infos`.
  virtual std::vector<GpuInfo> gpus() const = 0;
  /// See `device::capture`.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& work) = 0;
  /// See `device::own_stream`.
  virtual std::unique_ptr<Scope> own_stream(torch::Device device) = 0;
  /// See `device::sync_alarm`.
  virtual std::unique_ptr<Scope> sync_alarm() = 0;
  /// See `device::upload`.
  virtual std::vector<torch::Tensor> upload(const std::vector<torch::Tensor>& tensors,
                                            torch::Device device) = 0;
  /// See `device::nccl_group`.
  virtual c10::intrusive_ptr<c10d::Backend> nccl_group(const NcclOptions& options) = 0;
};

/// Whether libgradus_cuda.so was found and loaded. It is searched for beside libgradus.so (or the
/// program), or at `$GRADUS_CUDA_PLUGIN`, once per process.
bool has_plugin();
/// The path of the loaded plugin, or the reason why there is none.
const std::string& plugin_text();
/// The GPUs of this machine; empty without the plugin.
std::vector<GpuInfo> gpu_infos();

/// Calls `work` and records what it launches on this thread's stream instead of running it. The
/// stream must not be the default one: call `own_stream` before. Requires `has_plugin()`.
///
/// All graphs share one memory pool, so replay them one after another. Tensors that outlive `work`
/// keep their memory. Throws what `work` throws, and CUDA's error when something in it cannot be
/// recorded; the stream can be used as before afterwards.
std::unique_ptr<Graph> capture(const std::function<void()>& work);

/// Gives this thread a stream of its own on `device` while the scope lives. Null on the CPU or
/// without the plugin.
std::unique_ptr<Scope> own_stream(torch::Device device);

/// Makes every torch operation that waits for the GPU throw while the scope lives. For tests. Null
/// without the plugin.
std::unique_ptr<Scope> sync_alarm();

/// Copies tensors to `device` on a separate copy stream. The current stream waits for the copies,
/// the host does not; memory that is not page-locked is staged first. Undefined tensors stay
/// undefined.
std::vector<torch::Tensor> upload(const std::vector<torch::Tensor>& tensors, torch::Device device);

/// A group of c10d that exchanges tensors on GPUs by NCCL. Null without the plugin, or when it was
/// built without NCCL. Its exchanges may be recorded (`capture`) after the first one.
c10::intrusive_ptr<c10d::Backend> nccl_group(const NcclOptions& options);

}  // namespace gradus::device
