#include "train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/checkpoint/manifest.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/core/numpy_random.h>
#include <gradus/device/runtime.h>
#include <gradus/optim/factory.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace gradus {
namespace fs = std::filesystem;
namespace {

// The folder that a checkpoint lies in, also of "checkpoint-5" and "runs/a/checkpoint-5/".
fs::path folder_around(const fs::path& checkpoint) {
  const auto plain = checkpoint.lexically_normal();
  const auto parent = (plain.has_filename() ? plain : plain.parent_path()).parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

std::string how_to_go_on(const fs::path& checkpoint) {
  const auto run_dir = folder_around(checkpoint);
  if (const auto newest = newest_complete_checkpoint(run_dir))
    return fmt::format(
        "The newest complete checkpoint is {0}. Use it with --resume_from_checkpoint {0},\nor "
        "--resume_from_checkpoint last to let gradus pick it.",
        newest->path.string());
  return fmt::format(
      "There is no complete checkpoint in {}. Start anew without --resume_from_checkpoint.",
      run_dir == "." ? "this folder" : run_dir.string());
}

// "step 500 of 2000, epoch 1.25"
std::string place_in_run(const TrainerState& state, int64_t max_steps) {
  return fmt::format("step {} of {}, epoch {}", state.global_step, max_steps,
                     std::round(state.epoch * 100) / 100);
}

// A line at the default log level that is no warning.
void say_to_user(const TrainerState& state, const std::string& line) {
  if (log_level() <= LogLevel::warning && state.is_local_process_zero) log_print(line + "\n");
}

fs::path checked(const fs::path& checkpoint) {
  if (!fs::is_directory(checkpoint))
    throw Error(
        "G-CKPT-1", ErrorKind::checkpoint,
        "can't find a valid checkpoint at " + checkpoint.string() + ": there is no such folder",
        how_to_go_on(checkpoint));
  const auto report = verify_checkpoint(checkpoint, Verify::full);
  if (!report.complete())
    throw Error("G-CKPT-3", ErrorKind::checkpoint,
                fmt::format("cannot resume from {}: {}", checkpoint.string(),
                            fmt::join(report.problems, "; ")),
                how_to_go_on(checkpoint));
  return checkpoint;
}

// The keys of a parameter group that the changed options set: the table of optimizers knows.
std::set<std::string> group_keys(const ChangedOptions& changed, const Optimizer& optimizer) {
  std::set<std::string> keys;
  for (const auto& [option, former] : changed)
    for (auto& key : group_keys_of_option(optimizer.name(), option)) keys.insert(std::move(key));
  return keys;
}

// `saved` with those settings of `made` that `keys` names. Rates that a metric has lowered stay
// lowered.
StateTree with_new_settings(const StateTree& saved, const StateTree& made,
                            const std::set<std::string>& keys) {
  auto groups = StateTree::list();
  const auto& made_groups = made.at("param_groups").items();
  const auto& saved_groups = saved.at("param_groups").items();
  if (made_groups.size() != saved_groups.size()) return saved;  // load_state_dict says so
  for (size_t g = 0; g < saved_groups.size(); ++g) {
    auto group = saved_groups[g];
    if (keys.contains("initial_lr") && group.contains("initial_lr") &&
        made_groups[g].contains("initial_lr")) {
      const double before = group.at("initial_lr").as_double();
      if (before != 0)
        group.set("lr", group.at("lr").as_double() * made_groups[g].at("initial_lr").as_double() /
                            before);
    }
    for (const auto& key : keys)
      if (const auto* value = made_groups[g].find(key)) group.set(key, *value);
    groups.push(std::move(group));
  }
  return StateTree(saved).set("param_groups", std::move(groups));
}

}  // namespace

Resume Resume::parse(const std::string& text) {
  auto word = text;
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  if (word.empty() || word == "false" || word == "no") return none();
  if (word == "true" || word == "yes") return newest();
  if (word == "last") return last();
  return from(text);
}

fs::path resolve_resume(const Resume& resume, const fs::path& run_dir) {
  remove_unfinished(run_dir);
  return find_resume(resume, run_dir);
}

fs::path find_resume(const Resume& resume, const fs::path& run_dir) {
  switch (resume.kind()) {
    case Resume::Kind::none: return {};
    case Resume::Kind::path: return checked(resume.path());
    case Resume::Kind::newest: {
      const auto newest = newest_checkpoint(run_dir);
      if (!newest)
        throw Error("G-CKPT-1", ErrorKind::checkpoint,
                    "no valid checkpoint found in output directory (" + run_dir.string() + ")",
                    "Start without --resume_from_checkpoint, or use --resume_from_checkpoint last, "
                    "which starts from the beginning when there is none.");
      return checked(newest->path);
    }
    case Resume::Kind::last: break;
  }
  const auto all = list_checkpoints(run_dir);
  for (auto each = all.rbegin(); each != all.rend(); ++each) {
    const auto report = verify_checkpoint(each->path, Verify::full);
    if (report.complete()) return each->path;
    log_warning(fmt::format("{} is not complete ({}) and is ignored.", each->path.string(),
                            fmt::join(report.problems, "; ")));
  }
  return {};
}

ChangedOptions warn_about_changed_options(const TrainingArguments& args,
                                          const fs::path& checkpoint) {
  const auto warn = [](const std::string& name, const nlohmann::json& now,
                       const nlohmann::json& then, const char* file) {
    log_warning(fmt::format("{}: {} (from args) != {} (from {}); the new value is used.", name,
                            dump_json(now), dump_json(then), file));
  };
  const auto current = nlohmann::json(args.to_dict());
  const auto file = checkpoint / "training_args.json";
  if (fs::exists(file)) {
    // Where a run lives and how it is watched may change freely.
    static const std::set<std::string> kFree = {"output_dir",
                                                "resume_from_checkpoint",
                                                "do_train",
                                                "do_eval",
                                                "do_predict",
                                                "overwrite_output_dir",
                                                "run_name",
                                                "log_level",
                                                "log_level_replica",
                                                "disable_tqdm",
                                                "report_to",
                                                "num_threads",
                                                "dataloader_num_workers",
                                                "local_rank",
                                                "fsdp",
                                                "fsdp_config",
                                                "zero_stage",
                                                "save_failures_allowed",
                                                "log_histograms",
                                                "profile_steps",
                                                "save_total_limit"};
    const auto former = read_json(file);
    ChangedOptions changed;
    for (const auto& [name, value] : current.items()) {
      if (kFree.contains(name) || !former.contains(name) || former[name] == value) continue;
      warn(name, value, former[name], "training_args.json");
      changed.emplace(name, former[name]);
    }
    return changed;
  }
  const auto saved = TrainerState::load_from_json(checkpoint / "trainer_state.json");
  const auto compare = [&](const char* name, const StepsOrRatio& now, int64_t then) {
    if (!now.is_ratio() && now.steps(0) != then)
      warn(name, now.steps(0), then, "trainer_state.json");
  };
  compare("logging_steps", args.logging_steps, saved.logging_steps);
  if (args.eval_steps) compare("eval_steps", *args.eval_steps, saved.eval_steps);
  compare("save_steps", args.save_steps, saved.save_steps);
  if (saved.train_batch_size && *saved.train_batch_size != args.train_batch_size())
    warn("per_device_train_batch_size", args.train_batch_size(), *saved.train_batch_size,
         "trainer_state.json");
  return {};
}

void say_where_a_run_goes_on(const fs::path& checkpoint, const TrainerState& state,
                             int64_t max_steps) {
  say_to_user(state, fmt::format("Continuing from {}: {}", checkpoint.string(),
                                 place_in_run(state, max_steps)));
}

void say_where_a_run_stopped(const fs::path& checkpoint, const TrainerState& state,
                             int64_t max_steps) {
  const auto place = place_in_run(state, max_steps);
  say_to_user(state,
              fs::is_directory(checkpoint)
                  ? fmt::format("Stopped by a signal at {}. The run is saved as {}", place,
                                checkpoint.string())
                  : fmt::format("Stopped by a signal at {}. Nothing was saved there.", place));
}

void set_random_state(const RngState& random) {
  numpy_random().load(random.numpy);
  device::set_cpu_rng_state(random.cpu);
  device::set_gpu_rng_states(random.cuda);
}

void load_training_state(const StateTree& optimizer_state, const StateTree& schedule_state,
                         Optimizer& optimizer, LRScheduler& lr_scheduler,
                         const ChangedOptions& changed, int64_t global_step) {
  const auto made = optimizer.state_dict();
  const auto made_schedule = lr_scheduler.state_dict();
  const auto keys = group_keys(changed, optimizer);
  optimizer.load_state_dict(with_new_settings(optimizer_state, made, keys));
  const bool other_kind =
      made_schedule.contains("base_lrs") !=
      schedule_state.contains("base_lrs");  // Python's checkpoints do not say of which type it was
  if (other_kind)
    log_warning(
        "The checkpoint was written with a schedule of another kind; the new one continues at the "
        "same step.");
  if (other_kind ||
      changed.contains("lr_scheduler_type")) {  // its state means nothing to the new one
    if (!lr_scheduler.is_metric_driven())
      for (int64_t i = 0; i < global_step; ++i) lr_scheduler.step();
    return;
  }
  auto schedule = schedule_state;
  const bool other_peak = keys.contains("initial_lr");
  if (other_peak && made_schedule.contains("base_lrs"))
    schedule.set("base_lrs", made_schedule.at("base_lrs"));
  lr_scheduler.load_state_dict(schedule);
  const bool other_rates = std::any_of(changed.begin(), changed.end(), [](const auto& option) {
    static const std::set<std::string> kOfSchedules = {"lr_scheduler_kwargs", "warmup_steps",
                                                       "max_steps", "num_train_epochs"};
    return kOfSchedules.contains(option.first);
  });
  if (!other_rates && !other_peak) return;
  const auto rates = lr_scheduler.rates_after(lr_scheduler.steps_done());
  for (size_t g = 0; g < rates.size(); ++g) optimizer.param_groups().at(g).lr = rates[g];
}

}  // namespace gradus
