#pragma once

#include <torch/types.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "models/exported/export_manifest.h"

namespace torch::inductor {
class AOTIModelPackageLoader;
}

namespace gradus {

/// One compiled step of an exported model, loaded into this process.
///
/// Thread-safety: one call of `run` at a time.
class ExportedPackage {
 public:
  /// Loads a step for `device`. Throws `Error` G-EXPORT-2 when the file is missing, damaged or
  /// would be unpacked outside its folder, G-EXPORT-3 when it was made for another torch version or
  /// processor.
  ExportedPackage(const std::filesystem::path& folder, const ExportManifest& manifest,
                  const ExportManifest::Package& package, const ExportManifest::Step& step,
                  torch::Device device);
  ~ExportedPackage();

  /// Runs the step, without gradients and without autocast, on the current stream of its device.
  std::vector<torch::Tensor> run(const std::vector<torch::Tensor>& inputs);

 private:
  torch::Device device_;
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader_;
};

}  // namespace gradus
