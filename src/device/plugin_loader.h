#pragma once

#include <gradus/device/gpu.h>

#include <string>

namespace gradus::device {

struct LoadedPlugin {
  CudaPlugin* plugin = nullptr;  ///< lives as long as the process; null when there is none
  std::string text;              ///< its path, or why there is none
};

/// The plugin of this process. The first call loads it, when a driver is there.
const LoadedPlugin& loaded_plugin();

/// Whether the machine has an NVIDIA driver.
bool driver_is_there();

}  // namespace gradus::device
