#include <gradus/checkpoint/rotation_policy.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/device/runtime.h>
#include <gradus/formats/rng_state.h>
#include <gradus/formats/torch_file.h>
#include <gradus/hooks/checkpoint_hook.h>
#include <gradus/hooks/ema_hook.h>
#include <gradus/hooks/metrics_hook.h>
#include <gradus/hooks/trainer.h>

#include <fmt/format.h>

#include "core/mapped_reads.h"
#include "core/temporary_name.h"
#include "hooks/trainer_snapshot.h"
#include "hooks/yaml_text.h"

namespace gradus::hooks {
namespace {

namespace fs = std::filesystem;

/// Writes a torch file that appears under its name only when it is complete.
void write_file(const fs::path& file, const StateTree& tree) {
  const auto temporary = file.parent_path() / temporary_name(file.filename().string());
  try {
    write_torch_file(temporary, tree);
    publish_directory(temporary,
                      file);  // syncs, renames and syncs the folder; a file is as good as a folder
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
  log_info("Saved checkpoint: " + file.string());
}

void remove_file(const fs::path& file) {
  std::error_code code;
  fs::remove(file, code);
  if (code) log_warning(fmt::format("cannot remove {}: {}", file.string(), code.message()));
}

}  // namespace

CheckpointHook::CheckpointHook(CheckpointOptions options) : options_(std::move(options)) {
  ord = -3;
  if (options_.save_dir.empty())
    throw Error("G-HOOK-1", ErrorKind::usage, "CheckpointHook has no save_dir",
                "Name the folder for the checkpoints.");
  if (options_.save_every_steps < 1 || options_.keep_last < 1)
    throw Error("G-HOOK-1", ErrorKind::usage,
                fmt::format("CheckpointHook: expected save_every_steps and keep_last of at least "
                            "1, received {} and {}",
                            options_.save_every_steps, options_.keep_last),
                "The defaults are 1000 and 3.");
}

bool CheckpointHook::will_resume() const {
  return options_.resume_path && fs::exists(*options_.resume_path);
}

void CheckpointHook::before_fit(Trainer& trainer) {
  if (trainer.is_main()) {
    make_directory(options_.save_dir);
    remove_unfinished(options_.save_dir);
    save_config(trainer);
  }
  if (!options_.resume_path || options_.resume_path->empty()) return;
  if (will_resume()) return load_checkpoint(trainer, *options_.resume_path);
  log_info(fmt::format("Resume path {} does not exist. Starting fresh training.",
                       options_.resume_path->string()));
}

void CheckpointHook::after_step(Trainer& trainer) {
  const auto step = trainer.step_state().optimizer_step;
  if (!trainer.training() || !trainer.did_opt_step() || step % options_.save_every_steps != 0 ||
      !trainer.is_main())
    return;
  const auto name = fmt::format("checkpoint_step_{}.pt", step);
  save(trainer, name);
  saved_.push_back({options_.save_dir / name, step});
  for (const auto& old : RotationPolicy(options_.keep_last).to_delete(saved_, std::nullopt)) {
    remove_file(old.path);
    std::erase(saved_, old);
  }
  if (options_.save_strategy != SaveStrategy::best || !is_best(trainer)) return;
  const auto best = fmt::format("checkpoint_best_step_{}.pt", step);
  save(trainer, best);
  if (const auto former = std::exchange(best_file_, options_.save_dir / best);
      former && *former != *best_file_)
    remove_file(*former);
}

/// Whether the metric is smaller than ever before in this run.
bool CheckpointHook::is_best(const Trainer& trainer) {
  const auto* metrics = trainer.get_hook<MetricsHook>(nullptr);
  if (metrics == nullptr) return false;
  const auto step_data = metrics->step_data();
  const auto& data = step_data.contains(options_.metric_name) ? step_data : metrics->epoch_data();
  const auto found = data.find(options_.metric_name);
  if (found == data.end() || !(found->second < best_metric_)) return false;
  best_metric_ = found->second;
  return true;
}

void CheckpointHook::after_cancel(Trainer& trainer) {
  if (trainer.is_main()) save(trainer, "checkpoint_interrupted.pt");
}

void CheckpointHook::after_fit(Trainer& trainer) {
  if (!trainer.is_main()) return;
  save(trainer, "model_final.pt");
  auto exported = StateTree::dict();
  exported.set("model", exported_weights(trainer));
  write_file(options_.save_dir / "model.pt", exported);
  save_config(trainer);
}

void CheckpointHook::save(Trainer& trainer, const std::string& file_name) const {
  write_file(options_.save_dir / file_name, trainer_snapshot(trainer));
}

void CheckpointHook::save_config(const Trainer& trainer) const {
  if (!trainer.config().is_null() && !trainer.config().empty())
    write_file_atomically(options_.save_dir / "config.yaml", yaml_text(trainer.config()));
}

void CheckpointHook::load_checkpoint(Trainer& trainer, const fs::path& file) {
  try {
    read_mapped([&] { load_snapshot(trainer, read_torch_file(file)); });
  } catch (const Error& error) {
    throw Error(error.id(), error.kind(),
                fmt::format("cannot resume from {}: {}", file.string(), error.message()),
                error.advice());
  }
  log_info(fmt::format("Resumed training from checkpoint: {}, optimizer_step {}", file.string(),
                       trainer.step_state().optimizer_step));
}

}  // namespace gradus::hooks
