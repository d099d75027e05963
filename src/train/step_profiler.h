#pragma once

#include <gradus/train/callback.h>
#include <torch/types.h>

#include <filesystem>

#include "config/profiled_steps.h"

namespace gradus {

/// `--profile_steps`: writes what torch's profiler sees of some steps as a file for Perfetto.
///
/// On a GPU the file has every kernel, also those of a recorded step. The steps before and after
/// are waited for, so that they are not in it. A process other than the first adds its rank to the
/// file's name. Where the profiler fails, for example because another program uses it, the run goes
/// on with a warning.
class StepProfiler : public TrainerCallback {
 public:
  StepProfiler(config::ProfiledSteps steps, torch::Device device);
  ~StepProfiler() override;

  void on_step_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                     const CallbackContext&) override;
  void on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  /// A run that ends before the last of the steps leaves what was seen until then.
  void on_train_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                    const CallbackContext&) override;

 private:
  void begin();
  void end(const std::filesystem::path& file);
  void wait_for_device() const;

  config::ProfiledSteps steps_;
  torch::Device device_;
  bool is_on_ = false;
};

}  // namespace gradus
