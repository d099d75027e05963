#pragma once

#include <gradus/formats/rng_state.h>
#include <gradus/optim/schedulers.h>
#include <gradus/train/trainer.h>

#include <map>

namespace gradus {

/// The checkpoint to go on from, checked; empty for a fresh start.
/// Throws `Error` G-CKPT-1 when there is none, G-CKPT-3 when the one asked for is not complete.
std::filesystem::path find_resume(const Resume& resume, const std::filesystem::path& run_dir);
/// The same, for a run that begins: what a killed one has left unfinished is removed.
std::filesystem::path resolve_resume(const Resume& resume, const std::filesystem::path& run_dir);

/// Options that differ from those a checkpoint was written with, and their former values.
using ChangedOptions = std::map<std::string, nlohmann::json>;

/// One warning for every option that differs; the new ones are used. Gives those known from
/// training_args.json, which Python does not write.
ChangedOptions warn_about_changed_options(const TrainingArguments& args,
                                          const std::filesystem::path& checkpoint);

/// Says at the default log level that a run goes on, and from where; that one was stopped, and
/// where it is saved.
void say_where_a_run_goes_on(const std::filesystem::path& checkpoint, const TrainerState& state,
                             int64_t max_steps);
void say_where_a_run_stopped(const std::filesystem::path& checkpoint, const TrainerState& state,
                             int64_t max_steps);

/// Puts torch's generators, those of the GPUs included, into a saved state.
void set_random_state(const RngState& random);

/// Takes over the saved states of optimizer and schedule, whose settings come with them; those
/// among `changed` keep the values that both were made with now.
void load_training_state(const StateTree& optimizer_state, const StateTree& schedule_state,
                         Optimizer& optimizer, LRScheduler& lr_scheduler,
                         const ChangedOptions& changed, int64_t global_step);

}  // namespace gradus
