#pragma once

#include <gradus/train/trainer_state.h>
#include <torch/types.h>

#include <optional>
#include <string>

namespace gradus {

/// Memory used by the stages init, train, eval and test (`skip_memory_metrics=false`), HF's keys.
///
/// A stage inside another (evaluation during training) is not measured.
class MemoryTracker {
 public:
  MemoryTracker(bool enabled, torch::Device device) : enabled_(enabled), device_(device) {}

  void start(const std::string& stage);
  /// Ends `stage` if it is the one being measured and adds its numbers (with those of init, the
  /// first time) to `metrics`.
  void stop(const std::string& stage, Metrics* metrics);

  /// Measures a stage while it lives, so that one that fails does not hide those after it.
  class Stage {
   public:
    Stage(MemoryTracker& tracker, std::string name) : tracker_(tracker), name_(std::move(name)) {
      tracker_.start(name_);
    }
    ~Stage() { tracker_.stop(name_, nullptr); }
    Stage(const Stage&) = delete;
    Stage& operator=(const Stage&) = delete;

   private:
    MemoryTracker& tracker_;
    std::string name_;
  };

 private:
  bool enabled_;
  torch::Device device_;
  std::optional<std::string> stage_;
  int64_t cpu_begin_ = 0, gpu_begin_ = 0;
  Metrics init_metrics_;
  bool init_reported_ = false;
};

}  // namespace gradus
