#include <gradus/device/gpu.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "device/plugin_loader.h"

namespace gradus::device {

bool has_plugin() { return loaded_plugin().plugin != nullptr; }
const std::string& plugin_text() { return loaded_plugin().text; }

std::vector<GpuInfo> gpu_infos() {
  auto* plugin = loaded_plugin().plugin;
  return plugin != nullptr ? plugin->gpus() : std::vector<GpuInfo>();
}

std::unique_ptr<Graph> capture(const std::function<void()>& work) {
  return loaded_plugin().plugin->capture(work);
}

std::unique_ptr<Scope> own_stream(torch::Device device) {
  auto* plugin = loaded_plugin().plugin;
  return plugin != nullptr && device.is_cuda() ? plugin->own_stream(device) : nullptr;
}

std::unique_ptr<Scope> sync_alarm() {
  auto* plugin = loaded_plugin().plugin;
  return plugin != nullptr ? plugin->sync_alarm() : nullptr;
}

std::vector<torch::Tensor> upload(const std::vector<torch::Tensor>& tensors, torch::Device device) {
  auto* plugin = loaded_plugin().plugin;
  if (plugin != nullptr && device.is_cuda()) return plugin->upload(tensors, device);
  std::vector<torch::Tensor> moved;
  for (const auto& tensor : tensors)
    moved.push_back(tensor.defined() ? tensor.to(device, /*non_blocking=*/true) : tensor);
  return moved;
}

c10::intrusive_ptr<c10d::Backend> nccl_group(const NcclOptions& options) {
  auto* plugin = loaded_plugin().plugin;
  return plugin != nullptr ? plugin->nccl_group(options) : nullptr;
}

}  // namespace gradus::device
