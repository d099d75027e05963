#include "device/plugin_loader.h"

#include <dlfcn.h>
#include <gradus/core/log.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "kernels/recorder.h"

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

/// Models record their decoding by this.
void let_models_record(CudaPlugin& plugin) {
  struct Work : kernels::RecordedWork {
    explicit Work(std::unique_ptr<Graph> given) : graph(std::move(given)) {}
    void replay() override { graph->replay(); }
    std::unique_ptr<Graph> graph;
  };
  auto recorder = std::make_shared<kernels::Recorder>();
  recorder->takes = [](torch::Device device) { return device.is_cuda(); };
  recorder->record = [&plugin](const std::function<void()>& work) {
    return std::make_unique<Work>(plugin.capture(work));
  };
  recorder->own_stream = [&plugin](torch::Device device) -> std::shared_ptr<void> {
    return std::shared_ptr<Scope>(plugin.own_stream(device));
  };
  kernels::set_recorder(std::move(recorder));
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
    if (plugin != nullptr) {
      let_models_record(*plugin);
      return {plugin, path.string()};
    }
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
