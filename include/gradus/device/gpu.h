#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gradus::device {

/// What the plugin library libgradus_cuda.so adds to LibTorch's own CUDA part. Everything here also
/// answers where there is no GPU or no plugin: `has_plugin()` is then false, `upload` is a plain
/// copy, and scopes do nothing.

struct GpuInfo {
  std::string name;
  int64_t memory = 0;        ///< bytes on the card
  int64_t free = 0;          ///< of them not in use by anyone
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  int driver = 0;  ///< CUDA version of the driver: 13000 is 13.0
};

/// Something that holds while the object lives.
struct Scope {
  virtual ~Scope() = default;
};

/// Work on a GPU that was recorded once and can be run again with one launch.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void replay() = 0;
};

/// The plugin's interface; implemented in src/cuda, which must not need anything else of the
/// library.
class CudaPlugin {
 public:
  static constexpr int kInterface =
      1;  ///< changes with this class, so that a plugin of another build is refused

  virtual ~CudaPlugin() = default;
  virtual std::vector<GpuInfo> gpus() const = 0;
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& work) = 0;
  virtual std::unique_ptr<Scope> own_stream(torch::Device device) = 0;
  virtual std::unique_ptr<Scope> sync_alarm() = 0;
  virtual std::vector<torch::Tensor> upload(const std::vector<torch::Tensor>& tensors,
                                            torch::Device device) = 0;
};

/// Whether libgradus_cuda.so was found and loaded. Looked for beside libgradus.so (or the program),
/// or at $GRADUS_CUDA_PLUGIN.
bool has_plugin();
/// Where it was loaded from, or why it was not.
const std::string& plugin_text();
/// The cards; empty without plugin.
std::vector<GpuInfo> gpu_infos();

/// Runs `work` on the current stream of this thread (one of its own, see `own_stream`) while
/// recording it instead of doing it. Memory of recorded work comes from one pool shared by all
/// graphs: replay them one after another. Tensors that `work` leaves alive keep their memory.
/// Throws what `work` throws, or what CUDA says when something in it cannot be recorded; afterwards
/// plain work goes on as before. Only where `has_plugin()`.
std::unique_ptr<Graph> capture(const std::function<void()>& work);

/// A stream of its own for this thread's work on `device` while the scope lives.
std::unique_ptr<Scope> own_stream(torch::Device device);

/// While the scope lives, an operation of torch that makes the host wait for the GPU throws
/// instead.
std::unique_ptr<Scope> sync_alarm();

/// Copies to `device`, on a stream of its own so that work under way is not held up; the current
/// stream waits for the copies, the host does not (memory that is not page-locked is staged first).
std::vector<torch::Tensor> upload(const std::vector<torch::Tensor>& tensors, torch::Device device);

}  // namespace gradus::device
