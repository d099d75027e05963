#include "models/exported/exported_package.h"

#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/version.h>

#include <array>

#include "models/exported/step_files.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

/// How much a kind of processor can do; unset for one that is not known here.
std::optional<size_t> capability_rank(const std::string& name) {
  static constexpr std::array<std::string_view, 5> kRising = {"NO AVX", "DEFAULT", "AVX2", "AVX512",
                                                              "AMX"};
  for (size_t i = kRising.size(); i-- > 0;)
    if (name.starts_with(kRising[i])) return i;
  return std::nullopt;
}

void check_made_for(const ExportManifest& manifest, const ExportManifest::Package& package) {
  const auto here =
      fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH);
  if (package.torch_version != here)
    throw Error("G-EXPORT-3", ErrorKind::model,
                fmt::format("the model was exported with torch {}, gradus was built with torch {}",
                            package.torch_version, here),
                fmt::format("Export it again with that version: pip install torch=={}, then\n{}",
                            here, manifest.command_with("")));
  if (!package.cpu_capability) return;
  const auto needed = capability_rank(*package.cpu_capability),
             offered = capability_rank(at::get_cpu_capability());
  if (needed && offered && *needed > *offered)
    throw Error("G-EXPORT-3", ErrorKind::model,
                fmt::format("the model was compiled for a processor with {}, this one has {}",
                            *package.cpu_capability, at::get_cpu_capability()),
                "Export it on this machine:\n" + manifest.command_with(""));
}

/// Lets packages find torch's functions, also where a program has loaded gradus as a plugin.
void show_torch_symbols() {
  static const bool shown = [] {
    Dl_info library{};
    if (::dladdr(reinterpret_cast<void*>(&at::get_cpu_capability), &library) != 0)
      ::dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
    return true;
  }();
  static_cast<void>(shown);
}

}  // namespace

ExportedPackage::ExportedPackage(const fs::path& folder, const ExportManifest& manifest,
                                 const ExportManifest::Package& package,
                                 const ExportManifest::Step& step, torch::Device device)
    : device_(device) {
  check_made_for(manifest, package);
  const auto file = folder / step.file;
  check_step_file(file, step, manifest);
  check_package_archive(file, manifest);
  show_torch_symbols();
  try {
    // With several threads torch's runner would query events, which cannot be recorded.
    loader_ = std::make_unique<torch::inductor::AOTIModelPackageLoader>(
        file.string(), "model", /*run_single_threaded=*/true, /*num_runners=*/1,
        device.is_cpu() ? c10::DeviceIndex(-1) : device.index());
  } catch (const std::exception& error) {
    const std::string text = error.what();
    refuse_step_file(file, text.substr(0, text.find('\n')), manifest);
  }
}

ExportedPackage::~ExportedPackage() = default;

std::vector<torch::Tensor> ExportedPackage::run(const std::vector<torch::Tensor>& inputs) {
  const torch::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const c10::OptionalDeviceGuard guard(device_);
  return loader_->run(inputs);
}

}  // namespace gradus
