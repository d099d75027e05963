#include "train/step_profiler.h"

#include <fmt/format.h>
#include <gradus/config/training_arguments.h>
#include <gradus/core/log.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>

namespace gradus {
namespace {

namespace profiler = torch::autograd::profiler;
namespace fs = std::filesystem;

fs::path profile_file(const TrainingArguments& args, const config::ProfiledSteps& steps) {
  const auto rank = args.process_index();
  return fs::path(*args.output_dir) / fmt::format("profile-{}-{}{}.json", steps.first, steps.last,
                                                  rank == 0 ? "" : fmt::format("-rank{}", rank));
}

}  // namespace

StepProfiler::StepProfiler(config::ProfiledSteps steps, torch::Device device)
    : steps_(steps), device_(device) {}

StepProfiler::~StepProfiler() {
  if (!is_on_) return;
  try {
    profiler::disableProfiler();
  } catch (...) {  // nobody is left to be told
  }
}

void StepProfiler::wait_for_device() const {
  if (device_.is_cuda()) torch::cuda::synchronize(device_.index());
}

void StepProfiler::begin() {
  using torch::profiler::impl::ActivityType;
  std::set<ActivityType> kinds{ActivityType::CPU};
  if (device_.is_cuda()) kinds.insert(ActivityType::CUDA);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  wait_for_device();
  profiler::prepareProfiler(config, kinds);
  profiler::enableProfiler(config, kinds);
  is_on_ = true;
}

void StepProfiler::end(const fs::path& file) {
  is_on_ = false;
  try {
    wait_for_device();
    auto part = file;
    part += ".part";
    profiler::disableProfiler()->save(part.string());
    fs::rename(part, file);
    log_info("Wrote the profile of the steps to " + file.string() + ".");
  } catch (const std::exception& error) {
    log_warning(std::string("profile_steps: the profile could not be written: ") + error.what());
  }
}

void StepProfiler::on_step_begin(const TrainingArguments&, TrainerState& state, TrainerControl&,
                                 const CallbackContext&) {
  if (is_on_ || state.global_step + 1 != steps_.first) return;
  try {
    begin();
  } catch (const std::exception& error) {
    log_warning(std::string("profile_steps: torch's profiler does not start: ") + error.what());
  }
}

void StepProfiler::on_step_end(const TrainingArguments& args, TrainerState& state, TrainerControl&,
                               const CallbackContext&) {
  if (is_on_ && state.global_step >= steps_.last) end(profile_file(args, steps_));
}

void StepProfiler::on_train_end(const TrainingArguments& args, TrainerState& state, TrainerControl&,
                                const CallbackContext&) {
  if (is_on_) return end(profile_file(args, steps_));
  if (state.global_step < steps_.first)
    log_warning(fmt::format("profile_steps: the run ended at step {}, before step {}.",
                            state.global_step, steps_.first));
}

}  // namespace gradus
