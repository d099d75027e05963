#include "device/plugin_loader.h"

#include <dlfcn.h>
#include <gradus/core/log.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace gradus::device {
namespace {

namespace fs = std::filesystem;

// Where this code was loaded from: libgradus.so, or a program that has it built in.
fs::path own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&loaded_plugin), &info) == 0 ||
      info.dli_fname == nullptr)
    return {};
  std::error_code ignored;
  return fs::weakly_canonical(info.dli_fname, ignored).parent_path();
}

std::vector<fs::path> places() {
  if (const char* given = std::getenv("GRADUS_CUDA_PLUGIN"); given != nullptr && *given != '\0')
    return {given};
  const auto folder = own_folder();
  return {folder / "libgradus_cuda.so", folder / ".." / "lib" / "libgradus_cuda.so"};
}

LoadedPlugin load_plugin() {
  if (!driver_is_there()) return {nullptr, "not looked for: this machine has no NVIDIA driver"};
  for (const auto& path : places()) {
    if (!fs::exists(path)) continue;
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      const std::string why = ::dlerror();
      log_warning("The CUDA plugin could not be loaded, training continues without it: " + why);
      return {nullptr, "could not be loaded: " + why};
    }
    using Entry = CudaPlugin* (*)(int);
    const auto entry = reinterpret_cast<Entry>(::dlsym(library, "gradus_cuda_plugin"));
    auto* plugin = entry != nullptr ? entry(CudaPlugin::kInterface) : nullptr;
    if (plugin != nullptr) return {plugin, path.string()};
    log_warning(path.string() + " belongs to another version of gradus and is not used.");
    return {nullptr, path.string() + " belongs to another version of gradus"};
  }
  return {nullptr,
          "not found: build it with the preset 'cuda' (tools/setup --cuda brings the compiler)"};
}

}  // namespace

bool driver_is_there() {
  return fs::exists("/proc/driver/nvidia/version") || fs::exists("/dev/nvidiactl");
}

const LoadedPlugin& loaded_plugin() {
  static const LoadedPlugin plugin = load_plugin();
  return plugin;
}

}  // namespace gradus::device
