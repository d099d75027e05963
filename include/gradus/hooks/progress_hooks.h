#pragma once

#include <gradus/hooks/hook.h>
#include <gradus/trackers/progress_bar.h>
#include <torch/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gradus::hooks {

/// Shows a progress bar for each pass. Every `freq` batches it shows the mean loss so far, which
/// reads the device.
class ProgressBarHook : public MainProcessHook {
 public:
  /// Throws `Error` G-HOOK-1 when `freq` is below 1.
  explicit ProgressBarHook(int64_t freq = 10);
  void before_fit(Trainer& trainer) override;
  void before_epoch(Trainer& trainer) override;  ///< starts the bar of the training pass
  void before_valid(Trainer& trainer) override;  ///< starts the bar of the validation pass
  void after_step(Trainer& trainer) override;    ///< moves the bar
  void after_epoch(Trainer& trainer) override;   ///< ends the bar
  void after_fit(Trainer& trainer) override;

 private:
  void start(Trainer& trainer, const char* phase, int64_t done);

  int64_t freq_;
  std::unique_ptr<ProgressBar> bar_;
  torch::Tensor loss_sum_;  // on the device, so that a batch does not wait for it
  int64_t count_ = 0;
};

/// Settings of a `MemoryProfilerHook`.
struct MemoryProfilerOptions {
  std::filesystem::path save_dir = "./memory_snapshots";  ///< the folder for the files
  int64_t dump_every = 200;                               ///< optimizer steps between files
  int64_t max_entries = 100000;  ///< batches in the history; the oldest are dropped
};

/// Notes how much GPU memory is in use after every batch, and writes it to files.
///
/// The files are `snapshot_step_N.json`, `snapshot_interrupted.json` and `snapshot_final.json`.
/// Each holds `{"device", "allocated", "peak", "history": [[optimizer_step, allocated, peak],
/// ...]}` with sizes in bytes. Without a GPU the hook warns once and does nothing.
class MemoryProfilerHook : public Hook {
 public:
  /// Throws `Error` G-HOOK-1 for numbers below 1.
  explicit MemoryProfilerHook(MemoryProfilerOptions options = {});
  void before_fit(Trainer& trainer) override;
  void after_step(Trainer& trainer) override;    ///< notes the memory in use
  void after_cancel(Trainer& trainer) override;  ///< writes snapshot_interrupted.json
  void after_fit(Trainer& trainer) override;     ///< writes snapshot_final.json

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
