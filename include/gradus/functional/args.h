#pragma once

#include <gradus/functional/schedule.h>
#include <gradus/functional/transform.h>

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

namespace gradus::functional {

/// The settings of a run: names and defaults of the BigBird trainer.
struct Args {
  std::string model_id = "google/bigbird-roberta-base";
  int64_t logging_steps = 3000;  ///< of an epoch: evaluation and a log entry every so many steps
  int64_t save_steps = 10500;    ///< of an epoch: a checkpoint every so many steps
  int64_t block_size = 128;      ///< for the model; not read by the trainer, as `model_id`,
                                 ///< `num_random_blocks` and the data paths
  int64_t num_random_blocks = 3;
  int64_t batch_size_per_device = 1;
  int64_t max_epochs = 5;
  double lr = 3e-5;    ///< after the warm-up
  double init_lr = 0;  ///< before it
  int64_t warmup_steps = 20000;
  double weight_decay = 0.0095;
  std::string save_dir =
      "bigbird-roberta-natural-questions";  ///< checkpoints are SAVE_DIR-eEPOCH-sSTEP
  std::string base_dir = "";                ///< put before a relative `save_dir`
  std::string tr_data_path = "data/nq-training.jsonl";
  std::string val_data_path = "data/nq-validation.jsonl";

  /// `base_dir/save_dir-e0-s16`.
  std::filesystem::path checkpoint_dir(int64_t epoch, int64_t step) const;
};

/// As in `args.json`.
nlohmann::ordered_json to_json(const Args& args);
/// Fields that are not there keep their defaults. Throws `Error` G-FN-4 for an unknown one or a
/// value of another type.
Args args_from_json(const nlohmann::json& json, const std::string& where);

/// The reference's schedule: from `init_lr` to `lr` in `warmup_steps`, then to 1e-7 at
/// `num_train_steps`.
Schedule warmup_then_decay(const Args& args, int64_t num_train_steps);
/// The reference's optimizer: AdamW with that schedule; biases and norm scales do not decay.
GradientTransformation build_tx(const Args& args, int64_t num_train_steps);

}  // namespace gradus::functional
