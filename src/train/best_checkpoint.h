#pragma once

#include <gradus/config/training_arguments.h>
#include <gradus/models/model.h>
#include <gradus/train/trainer_state.h>

namespace gradus {

/// Notes in `state` where the best checkpoint is, as far as there is one; `step` is about to be
/// saved.
void note_best_checkpoint(TrainerState& state, const TrainingArguments& args, int64_t step);

/// `load_best_model_at_end`: puts the weights of the best checkpoint into the model. Warns when
/// that checkpoint is gone; the model then stays as it is.
void load_best_model(Model& model, const TrainerState& state);

/// With save_total_limit=1 two checkpoints may be left, the best and the newest: only the best
/// stays once training is over.
void remove_all_but_best(const TrainingArguments& args, const TrainerState& state);

}  // namespace gradus
