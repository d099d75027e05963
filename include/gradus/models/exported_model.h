#pragma once

#include <gradus/models/pretrained_model.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gradus {

struct ExportManifest;

/// Any PyTorch model that tools/export_model.py has exported: its training step and its forward
/// step are compiled functions of weights and batch, and nothing of Python is left.
///
/// It is a model like any other. In training mode `forward` runs the compiled training step, which
/// gives the loss and all gradients at once; `backward` then hands each parameter its gradient, so
/// accumulation, clipping, loss scaling, hooks and several processes work as usual. In evaluation
/// mode it runs the forward step. Buffers that the model updates (the statistics of batch norms)
/// are updated. Folders hold the weights under the names that Python gave them, beside the compiled
/// steps, so that a saved folder can be loaded again here, and its weights in Python.
///
///     auto model = ExportedModel::load("exported");
///     Trainer trainer({.model = model, .args = {...}, .train_dataset = data});
///
/// The loss can be differentiated with respect to the parameters, once; other outputs cannot be
/// differentiated. A package is machine code: load only folders that you would run as a program.
/// Thread-safety: as a torch module; one forward pass at a time.
class ExportedModel : public PreTrainedModel {
 public:
  /// Loads a folder that tools/export_model.py or `save_pretrained` wrote, in evaluation mode.
  /// `options.config` may repeat `num_labels` and replace keys that do not change the compiled
  /// steps.
  ///
  /// Throws `Error` G-EXPORT-1 when exported.json is missing or wrong, G-EXPORT-2 for a package
  /// that is missing, damaged or unsafe, G-EXPORT-3 for one of another torch version, processor or
  /// device, G-EXPORT-5 when the options ask for another model than was exported, and G-MODEL-8
  /// when weights are missing or have other shapes.
  static std::shared_ptr<ExportedModel> load(const std::filesystem::path& directory,
                                             const PretrainedOptions& options = {});
  /// Whether a folder holds an exported model, that is, exported.json.
  static bool is_exported(const std::filesystem::path& directory);
  ~ExportedModel() override;

  /// Training mode: the loss, and the other outputs when they are wanted and the training step was
  /// exported with them. Otherwise: all outputs; the loss only when the batch has labels.
  ///
  /// Inputs that the batch lacks are filled in where that has no effect (a mask of ones). Throws
  /// `Error` G-EXPORT-3 when there is no package for the device that the weights are on, and
  /// G-EXPORT-4 when the batch lacks an input or has sizes outside the exported bounds.
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;

  /// The inputs of the compiled steps.
  std::vector<std::string> input_names() const override;
  std::vector<std::string> label_names() const override;
  bool accepts_loss_kwargs() const override;
  bool shifts_labels() const override;
  bool counts_shifted_labels() const override;
  std::vector<std::string> keys_to_ignore_at_inference() const override;
  std::string main_input_name() const override;
  /// False: the compiled steps take float32 weights; `--precision` of the exporter decides in which
  /// type they compute.
  bool takes_bf16_weights() const override { return false; }
  double floating_point_ops(const Batch& inputs) const override;
  /// Throws `Error` G-EXPORT-5 unless the model was exported with gradient checkpointing.
  void gradient_checkpointing_enable(const GradientCheckpointing& how = {}) override;
  bool is_encoder_decoder() const override;
  /// The labels shifted right after the decoder's start token, as most models do it themselves.
  torch::Tensor prepare_decoder_input_ids_from_labels(const torch::Tensor& labels) const override;
  /// Writes exported.json and the packages beside config.json.
  void save_config(const std::filesystem::path& directory) const override;

  /// The task that the model was exported for, "causal_lm" for example; empty when any will do.
  const std::string& exported_task() const;
  /// In what the compiled steps compute: "float32", "bf16" (autocast) or "bf16_weights".
  const std::string& precision() const;
  /// The devices that there are packages for: "cpu", "cuda".
  std::vector<std::string> devices() const;

 private:
  struct Steps;
  ExportedModel(std::filesystem::path directory, nlohmann::json config,
                std::unique_ptr<ExportManifest> manifest);

  /// Makes the tree of modules that carries the parameters under their names.
  void add_tensors();

  std::filesystem::path directory_;  ///< where the packages are
  std::unique_ptr<ExportManifest> manifest_;
  std::unique_ptr<Steps> steps_;  ///< the loaded packages
};

}  // namespace gradus
