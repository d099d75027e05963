#pragma once

#include <gradus/data/batch.h>
#include <torch/types.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/exported/export_manifest.h"

namespace gradus {

/// Checks weights and batch against the manifest and makes the inputs of a step, in their order.
class StepInputs {
 public:
  /// `manifest` must outlive this object. The inputs will be on `device`.
  StepInputs(const ExportManifest& manifest, torch::Device device)
      : manifest_(manifest), device_(device) {}

  /// Adds a parameter or buffer, with the type that the step was compiled for.
  void add_weight(const torch::Tensor& tensor, const ExportManifest::Weight& weight);
  /// Adds the inputs that come from the batch; those that it lacks are filled where that has no
  /// effect. Throws `Error` G-EXPORT-4.
  void add_batch(const Batch& batch);
  /// Adds the number of items, by default that of this batch.
  void add_items(const std::optional<torch::Tensor>& items);
  /// Adds a seed, drawn from the device's generator.
  void add_seed();

  /// Whether the batch had no labels.
  bool lacks_labels() const { return lacks_labels_; }
  /// Throws `Error` G-EXPORT-4 when labels are missing, which a training step needs.
  void need_labels() const;
  /// What was added.
  const std::vector<torch::Tensor>& values() const { return values_; }

 private:
  torch::Tensor filled(const ExportManifest::Input& input, const Batch& batch) const;
  void check_shape(const ExportManifest::Input& input, const torch::Tensor& given);
  /// A compiled loop over several threads cannot say that a number is out of range: it ends the
  /// program.
  void check_values(const ExportManifest::Input& input, const torch::Tensor& given) const;
  [[noreturn]] void lack(const std::string& name, const Batch& batch) const;
  [[noreturn]] void refuse_shape(const ExportManifest::Input& input, const std::string& received,
                                 const std::string& change) const;

  const ExportManifest& manifest_;
  torch::Device device_;
  std::unordered_map<std::string, int64_t> sizes_;  ///< of the named dimensions of this batch
  std::vector<torch::Tensor> values_;
  torch::Tensor labels_;
  bool lacks_labels_ = false;
};

}  // namespace gradus
