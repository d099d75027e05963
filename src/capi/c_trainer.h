#pragma once

#include <gradus/config/training_arguments.h>
#include <gradus/models/pretrained_model.h>
#include <gradus/optim/optimizer.h>
#include <gradus/optim/schedulers.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace gradus {

/// What stands behind a handle of the C interface: a model with optimizer and schedule, fed batch
/// by batch by its caller. Thread-safety: none.
class CTrainer {
 public:
  /// Loads the model. `task` may be empty for exported folders. Throws `Error`.
  CTrainer(const std::filesystem::path& folder, const std::string& task,
           const nlohmann::json& options);

  /// One micro-batch; returns its loss.
  double step(const Batch& batch);
  /// The outputs in evaluation mode.
  ModelOutput evaluate(const Batch& batch);
  /// Optimizer steps so far.
  int64_t steps() const { return steps_; }
  /// Writes model, optimizer and schedule. Throws `Error` G-CAPI-1 within a window.
  void save(const std::filesystem::path& folder) const;
  /// Takes over what `save` wrote. An error leaves everything as it was.
  void load(const std::filesystem::path& folder);

 private:
  TrainingArguments args_;
  std::shared_ptr<PreTrainedModel> model_;
  std::shared_ptr<Optimizer> optimizer_;
  std::unique_ptr<LRScheduler> schedule_;
  int64_t steps_ = 0;    ///< of the optimizer
  int64_t batches_ = 0;  ///< of the window under way
};

}  // namespace gradus
