#pragma once

#include <gradus/hooks/hook.h>
#include <gradus/trackers/progress_bar.h>
#include <torch/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gradus::hooks {

/// A progress bar for each pass, with the mean loss so far every `freq` batches.
class ProgressBarHook : public MainProcessHook {
 public:
  /// Throws `Error` G-HOOK-1 when `freq` is below 1.
  explicit ProgressBarHook(int64_t freq = 10);
  void before_fit(Trainer& trainer) override;
  void before_epoch(Trainer& trainer) override;
  void before_valid(Trainer& trainer) override;
  void after_step(Trainer& trainer) override;
  void after_epoch(Trainer& trainer) override;
  void after_fit(Trainer& trainer) override;

 private:
  void start(Trainer& trainer, const char* phase, int64_t done);

  int64_t freq_;
  std::unique_ptr<ProgressBar> bar_;
  torch::Tensor loss_sum_;  // on the device, so that a batch does not wait for it
  int64_t count_ = 0;
};

struct MemoryProfilerOptions {
  std::filesystem::path save_dir = "./memory_snapshots";
  int64_t dump_every = 200;      ///< optimizer steps
  int64_t max_entries = 100000;  ///< the newest so many batches are kept
};

/// GPU memory after every batch, as snapshot_step_N.json, snapshot_interrupted.json and
/// snapshot_final.json:
/// {"device", "allocated", "peak", "history": [[optimizer_step, allocated, peak], …]}. Warns and
/// does nothing without a GPU.
class MemoryProfilerHook : public Hook {
 public:
  /// Throws `Error` G-HOOK-1 for numbers below 1.
  explicit MemoryProfilerHook(MemoryProfilerOptions options = {});
  void before_fit(Trainer& trainer) override;
  void after_step(Trainer& trainer) override;
  void after_cancel(Trainer& trainer) override;
  void after_fit(Trainer& trainer) override;

 private:
  struct Entry {
    int64_t step, allocated, peak;
  };
  void dump(Trainer& trainer, const std::string& label) const;

  MemoryProfilerOptions options_;
  std::vector<Entry> history_;
  bool enabled_ = false;
};

}  // namespace gradus::hooks
