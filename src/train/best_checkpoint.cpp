#include "train/best_checkpoint.h"

#include <fmt/format.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/core/log.h>
#include <gradus/models/model_folder.h>

namespace gradus {
namespace fs = std::filesystem;

void note_best_checkpoint(TrainerState& state, const TrainingArguments& args, int64_t step) {
  // transformers takes step 0 for none
  if (args.save_strategy == "no" || state.best_global_step.value_or(0) <= 0) return;
  const auto best = checkpoint_path(*args.output_dir, *state.best_global_step);
  if (*state.best_global_step == step || fs::is_directory(best))
    state.best_model_checkpoint = best.string();
}

void load_best_model(Model& model, const TrainerState& state) {
  const auto& best = *state.best_model_checkpoint;
  log_info(
      fmt::format("Loading best model from {} (score: {}).", best, state.best_metric.value_or(0)));
  if (fs::is_directory(best)) return load_model_folder(model, best);
  log_warning("The best checkpoint " + best +
              " does not exist any more; the model stays as it is after the last step.");
}

void remove_all_but_best(const TrainingArguments& args, const TrainerState& state) {
  if (!args.should_save() || !state.best_model_checkpoint || args.save_total_limit != 1) return;
  if (!fs::is_directory(*state.best_model_checkpoint)) return;  // then the others are all there is
  const auto best = fs::path(*state.best_model_checkpoint).filename();
  for (const auto& dir : list_checkpoints(*args.output_dir))
    if (dir.path.filename() != best) remove_checkpoint(dir);
}

}  // namespace gradus
