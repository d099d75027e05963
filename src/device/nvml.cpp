#include "device/nvml.h"

#include <dlfcn.h>

namespace gradus::device {
namespace {

// The few calls of NVML that are used, as nvml.h has declared them since CUDA 8.
struct Utilization {
  unsigned int gpu, memory;
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
using Handle = void*;

struct Nvml {
  int (*init)() = nullptr;
  int (*handle)(unsigned int, Handle*) = nullptr;
  int (*utilization)(Handle, Utilization*) = nullptr;
  int (*power)(Handle, unsigned int*) = nullptr;
  int (*memory)(Handle, MemoryInfo*) = nullptr;
  bool works = false;

  Nvml() {
    void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    works = find(init, "nvmlInit_v2") && find(handle, "nvmlDeviceGetHandleByIndex_v2") &&
            find(utilization, "nvmlDeviceGetUtilizationRates") &&
            find(power, "nvmlDeviceGetPowerUsage") && find(memory, "nvmlDeviceGetMemoryInfo") &&
            init() == 0;
  }
};

}  // namespace

std::optional<GpuUse> gpu_use(int index) {
  static const Nvml nvml;
  Handle gpu = nullptr;
  if (!nvml.works || nvml.handle(static_cast<unsigned int>(index), &gpu) != 0) return std::nullopt;
  Utilization busy{};
  MemoryInfo memory{};
  unsigned int milliwatts = 0;
  if (nvml.utilization(gpu, &busy) != 0 || nvml.memory(gpu, &memory) != 0) return std::nullopt;
  if (nvml.power(gpu, &milliwatts) != 0) milliwatts = 0;
  return GpuUse{double(busy.gpu), double(milliwatts) / 1000, memory.used, memory.total};
}

}  // namespace gradus::device
