#pragma once

#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/core/state_tree.h>
#include <gradus/hooks/hook.h>

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace gradus::hooks {

/// Which checkpoints are kept besides the last few.
enum class SaveStrategy {
  best,    ///< the one with the smallest metric
  latest,  ///< none
};

/// Where and how often `CheckpointHook` saves.
struct CheckpointOptions {
  /// The folder for all files; required.
  std::filesystem::path save_dir = {};
  /// Optimizer steps from one checkpoint to the next.
  int64_t save_every_steps = 1000;
  /// How many stay; the best, the interrupted and the final ones stay beside them.
  int64_t keep_last = 3;
  /// A checkpoint file to go on from. When it is not there, the run starts fresh.
  std::optional<std::filesystem::path> resume_path = {};
  /// Whether the best one is kept too.
  SaveStrategy save_strategy = SaveStrategy::best;
  /// What the best one is judged by: a metric of `MetricsHook`.
  std::string metric_name = "valid_loss";
};

/// Saves everything a run needs to go on: model, optimizer, schedule, scaler, average, random
/// numbers, counters and the place in the epoch. Files are torch files that Python's trainer-tools
/// reads too, and appear under their names only when complete: checkpoint_step_N.pt,
/// checkpoint_best_step_N.pt, checkpoint_interrupted.pt, model_final.pt, and at the end model.pt
/// (the averaged weights where there is an `EMAHook`) with config.yaml.
class CheckpointHook : public Hook {
 public:
  /// Throws `Error` G-HOOK-1 without a folder or for numbers below 1.
  explicit CheckpointHook(CheckpointOptions options);
  /// Creates the folder and goes on from `resume_path`.
  void before_fit(Trainer& trainer) override;
  /// Saves when a checkpoint is due, and removes older ones.
  void after_step(Trainer& trainer) override;
  void after_fit(Trainer& trainer) override;
  void after_cancel(Trainer& trainer) override;

  /// Puts a saved state back, written here or by Python. Throws what `read_torch_file` and the
  /// parts throw, naming the file.
  void load_checkpoint(Trainer& trainer, const std::filesystem::path& file);
  /// Whether this run goes on from a file that exists.
  bool will_resume() const;

 private:
  bool is_best(const Trainer& trainer);
  void save(Trainer& trainer, const std::string& file_name) const;
  void save_config(const Trainer& trainer) const;

  CheckpointOptions options_;
  std::vector<CheckpointDir> saved_;
  double best_metric_ = std::numeric_limits<double>::infinity();
  std::optional<std::filesystem::path> best_file_;
};

}  // namespace gradus::hooks
