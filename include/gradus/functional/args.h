#pragma once

#include <gradus/functional/schedule.h>
#include <gradus/functional/transform.h>

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

namespace gradus::functional {

/// The settings of a run, with the names and defaults of the Flax BigBird trainer.
///
/// The trainer does not read `model_id`, `block_size`, `num_random_blocks` and the two data paths.
/// They are for the program around it, and checkpoints keep them.
struct Args {
  std::string model_id = "google/bigbird-roberta-base";  ///< the model to start from
  int64_t logging_steps = 3000;       ///< steps of an epoch between evaluations with a log entry
  int64_t save_steps = 10500;         ///< steps of an epoch between checkpoints
  int64_t block_size = 128;           ///< of BigBird's sparse attention
  int64_t num_random_blocks = 3;      ///< of BigBird's sparse attention
  int64_t batch_size_per_device = 1;  ///< rows of a batch
  int64_t max_epochs = 5;             ///< passes over the training data
  double lr = 3e-5;                   ///< learning rate at the end of the warm-up
  double init_lr = 0;                 ///< learning rate at its beginning
  int64_t warmup_steps = 20000;       ///< steps from `init_lr` to `lr`
  double weight_decay = 0.0095;       ///< of AdamW
  /// Checkpoints are folders named `<save_dir>-e<epoch>-s<step>`.
  std::string save_dir = "bigbird-roberta-natural-questions";
  std::string base_dir = "";                               ///< put before a relative `save_dir`
  std::string tr_data_path = "data/nq-training.jsonl";     ///< training data
  std::string val_data_path = "data/nq-validation.jsonl";  ///< validation data

  /// The folder of a checkpoint, for example `base_dir/save_dir-e0-s16`.
  std::filesystem::path checkpoint_dir(int64_t epoch, int64_t step) const;
};

/// What `args.json` of a checkpoint holds.
nlohmann::ordered_json to_json(const Args& args);
/// Reads it back. Missing fields keep their defaults. Throws `Error` G-FN-4, with `where` in the
/// message, for an unknown field or a value of another type.
Args args_from_json(const nlohmann::json& json, const std::string& where);

/// The schedule of the BigBird trainer: linear from `init_lr` to `lr` in `warmup_steps`, then
/// linear to 1e-7 at `num_train_steps`.
Schedule warmup_then_decay(const Args& args, int64_t num_train_steps);
/// Its optimizer: AdamW with that schedule. Biases and the scales of norm layers do not decay.
GradientTransformation build_tx(const Args& args, int64_t num_train_steps);

}  // namespace gradus::functional
