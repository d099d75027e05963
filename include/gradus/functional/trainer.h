#pragma once

#include <gradus/data/collators.h>
#include <gradus/data/data_loader.h>
#include <gradus/distributed/process_group.h>
#include <gradus/functional/args.h>
#include <gradus/functional/flax_layout.h>
#include <gradus/functional/train_state.h>
#include <gradus/trackers/tracker.h>

#include <concepts>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

namespace gradus::functional {

/// A data collator together with its settings, which checkpoints keep as `data_collator.json`.
///
/// It is made from anything that is a `DataCollator`. A collator with
/// `nlohmann::json settings() const` and `static C from_settings(const nlohmann::json&)` is
/// restored from a checkpoint. Any other stays as it is.
class Collator {
 public:
  /// From a collator object or a function.
  template <class C>
    requires(!std::is_same_v<std::remove_cvref_t<C>, Collator> &&
             std::is_invocable_r_v<Batch, C&, std::vector<Example>>)
  Collator(C collator) {
    if constexpr (requires {
                    { collator.settings() } -> std::convertible_to<nlohmann::json>;
                  })
      settings_ = collator.settings();
    if constexpr (requires {
                    { C::from_settings(settings_) } -> std::convertible_to<C>;
                  })
      restore_ = [](const nlohmann::json& settings) {
        return Collator(C::from_settings(settings));
      };
    function_ = std::move(collator);
  }

  /// The collator as a function.
  const DataCollator& function() const { return function_; }
  /// Its settings; an empty object when it has none.
  const nlohmann::json& settings() const { return settings_; }
  /// Whether `restored` may be called.
  bool can_restore() const { return restore_ != nullptr; }
  /// A collator of the same kind with other settings.
  Collator restored(const nlohmann::json& settings) const { return restore_(settings); }

 private:
  DataCollator function_;
  nlohmann::json settings_ = nlohmann::json::object();
  std::function<Collator(const nlohmann::json&)> restore_;
};

/// Writes parameters into an existing folder.
using ModelSaveFn =
    std::function<void(const std::filesystem::path& directory, const Params& params)>;
/// Writes `flax_model.msgpack`.
void save_flax_model(const std::filesystem::path& directory, const Params& params);

/// What a `Trainer` is made of.
struct TrainerOptions {
  Args args = {};                                  ///< the settings of the run
  Collator data_collator = default_data_collator;  ///< makes batches of rows
  TrainStepFn train_step_fn = train_step;          ///< one step of training
  ValStepFn val_step_fn = val_step;                ///< one batch of an evaluation
  ModelSaveFn model_save_fn = save_flax_model;     ///< writes the weights of a checkpoint
  /// How checkpoints name and lay out the parameters. `model_save_fn` is given them like that.
  FlaxLayout flax_layout = {};
  std::shared_ptr<Tracker> logger = {};  ///< unset: log entries are only shown
  Schedule scheduler_fn = {};  ///< for the "lr" of log entries; unset: the schedule of `args`
  /// Called after every step; when it returns `true`, `train` ends. The state that `train` then
  /// returns can be saved and trained further.
  std::function<bool(const TrainState&)> should_stop = {};
  bool show_progress = true;  ///< a progress bar for each epoch
};

/// How `Trainer::create_state` makes a state.
struct CreateStateOptions {
  LossFn loss_fn = {};                                 ///< unset: what the model returns
  std::optional<std::filesystem::path> ckpt_dir = {};  ///< the checkpoint to resume from
  Key key = Key();                                     ///< for the first step of a new run
};

/// What a checkpoint holds besides the trainer's own functions.
struct Checkpoint {
  int64_t step = 0;                                 ///< steps done
  Params params;                                    ///< the model's parameters
  OptState opt_state;                               ///< what the optimizer remembers
  Key key = Key();                                  ///< for the next step
  double running_loss = 0;                          ///< sum of the losses of the epoch
  std::optional<Args> args;                         ///< absent when Python wrote the checkpoint
  std::optional<nlohmann::json> collator_settings;  ///< likewise
};

/// Reads a checkpoint for a state of the same model and optimizer. `flax_model.msgpack`,
/// `opt_state.msgpack` and `training_state.json` may have been written by Flax. Throws `Error`
/// G-FN-4, G-FLAX-1, G-FLAX-2, G-IO-1 or G-JSON-1. `layout` is that of the files.
Checkpoint restore_checkpoint(const std::filesystem::path& directory, const TrainState& like,
                              const FlaxLayout& layout = {});

/// Training with the state as a value: a step is a pure function of (state, key, batch), and this
/// class only calls it.
///
/// When a launcher has started several processes, they train together as devices do under
/// `jax.pmap`: each has the whole state and `batch_size_per_device` rows of every batch, and
/// `value_and_grad` gives means of gradients and losses. Process 0 logs and saves.
/// Follows the trainer of the Flax BigBird example. Thread-safety: none.
class Trainer {
 public:
  /// Throws G-FN-2 when a size in `args` is below 1 or a step function is missing.
  explicit Trainer(TrainerOptions options);

  /// The settings; those of the checkpoint after `create_state` with one.
  const Args& args() const { return options_.args; }
  /// The collator; restored likewise.
  const Collator& data_collator() const { return options_.data_collator; }

  /// The state a run starts with. Without `tx` the optimizer is `build_tx(args, num_train_steps)`.
  /// With `ckpt_dir`, step, parameters, optimizer state, key and running loss come from the
  /// checkpoint, and so do this trainer's args (but a `base_dir` that is set) and the collator's
  /// settings. Throws G-FN-2 when a size in those args is below 1.
  TrainState create_state(const ModelFunction& model, GradientTransformation tx,
                          int64_t num_train_steps, CreateStateOptions options = {});

  /// Trains until `max_epochs` epochs are done. The steps that `state` has already done count, so a
  /// resumed run ends where an uninterrupted one does. Rows are shuffled with the number of the
  /// epoch as seed, in the order of `datasets.Dataset.shuffle(seed=epoch)`; a last partial batch is
  /// left out. Throws G-FN-1 when a step returns no scalar loss, and G-FN-2 when there is not one
  /// full batch or the state has no parameters.
  TrainState train(TrainState state, const DatasetRef& train_data, const DatasetRef& val_data);

  /// The mean of the batches' losses. Rows are read in order; a last partial batch is left out.
  double evaluate(const TrainState& state, const DatasetRef& data) const;

  /// Writes `flax_model.msgpack` (with `model_save_fn`), `opt_state.msgpack`,
  /// `training_state.json`, `args.json` and `data_collator.json`. The folder appears under its name
  /// only when it is complete; it replaces one of the same name.
  void save_checkpoint(const std::filesystem::path& directory, const TrainState& state) const;

 private:
  TrainState run_epochs(TrainState state, const DatasetRef& train_data, const DatasetRef& val_data,
                        ProcessGroup* group);
  DataLoader loader(const DatasetRef& data, bool shuffle) const;
  /// Evaluates, hands the numbers to the logger and gives the line to show.
  std::string log(const TrainState& state, int64_t steps_of_epoch,
                  const DatasetRef& val_data) const;

  TrainerOptions options_;
};

}  // namespace gradus::functional
