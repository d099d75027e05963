#pragma once

#include <gradus/models/pretrained_model.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gradus {

struct ExportManifest;

/// A PyTorch model as TorchScript: the second way in, for models that cannot be compiled
/// (`ExportedModel`), and for any size of batch.
///
/// `tools/export_model.py --torchscript` writes the folder: one script for training, one for
/// evaluation, the weights under the names that Python gave them, and scripted.json. LibTorch runs
/// the scripts operation by operation and differentiates them, so the outputs are ordinary results
/// of the parameters: a loss of your own may use the logits. It is about as fast as Python.
/// A script can run any operation of torch: load only folders that you trust.
/// Thread-safety: as a torch module.
class ScriptedModel : public PreTrainedModel {
 public:
  /// Loads a folder that tools/export_model.py or `save_pretrained` wrote, in evaluation mode.
  /// Throws `Error` G-EXPORT-1 when scripted.json is missing or wrong, G-EXPORT-2 when a script is
  /// missing or damaged, G-MODEL-8 when weights are missing or have other shapes.
  static std::shared_ptr<ScriptedModel> load(const std::filesystem::path& directory,
                                             const PretrainedOptions& options = {});
  /// Whether a folder holds such a model, that is, scripted.json.
  static bool is_scripted(const std::filesystem::path& directory);
  ~ScriptedModel() override;

  /// Runs the script of the mode the model is in. Throws `Error` G-EXPORT-4 when the batch lacks an
  /// input or has other sizes than the model takes.
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;

  /// The inputs of the scripts.
  std::vector<std::string> input_names() const override;
  std::vector<std::string> label_names() const override;
  bool accepts_loss_kwargs() const override;
  bool shifts_labels() const override;
  bool counts_shifted_labels() const override;
  std::vector<std::string> keys_to_ignore_at_inference() const override;
  std::string main_input_name() const override;
  /// False: a script may do other work for another batch.
  bool is_recordable() const override { return false; }
  /// False: the scripts were traced with float32 weights.
  bool takes_bf16_weights() const override { return false; }
  bool is_encoder_decoder() const override;
  /// Writes scripted.json and the scripts beside config.json.
  void save_config(const std::filesystem::path& directory) const override;
  /// The task that the model was exported for, "causal_lm" for example; empty when any will do.
  const std::string& exported_task() const;

 private:
  struct Scripts;
  ScriptedModel(std::filesystem::path directory, nlohmann::json config,
                std::unique_ptr<ExportManifest> manifest);

  std::filesystem::path directory_;
  std::unique_ptr<ExportManifest> manifest_;
  std::unique_ptr<Scripts> scripts_;
};

}  // namespace gradus
