#pragma once

#include <gradus/data/collators.h>
#include <gradus/data/data_loader.h>
#include <gradus/functional/args.h>
#include <gradus/functional/train_state.h>
#include <gradus/trackers/tracker.h>

#include <concepts>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

namespace gradus::functional {

/// A data collator and, where it can tell them, its settings, which go into checkpoints as
/// `data_collator.json`.
///
/// Made of anything that is a `DataCollator`. One with `nlohmann::json settings() const` and
/// `static C from_settings(const nlohmann::json&)` is restored from a checkpoint; any other stays
/// as it is.
class Collator {
 public:
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

  const DataCollator& function() const { return function_; }
  const nlohmann::json& settings() const { return settings_; }
  bool can_restore() const { return restore_ != nullptr; }
  Collator restored(const nlohmann::json& settings) const { return restore_(settings); }

 private:
  DataCollator function_;
  nlohmann::json settings_ = nlohmann::json::object();
  std::function<Collator(const nlohmann::json&)> restore_;
};

/// Writes the parameters into an existing folder.
using ModelSaveFn =
    std::function<void(const std::filesystem::path& directory, const Params& params)>;
/// Writes `flax_model.msgpack`.
void save_flax_model(const std::filesystem::path& directory, const Params& params);

struct TrainerOptions {
  Args args = {};
  Collator data_collator = default_data_collator;
  TrainStepFn train_step_fn = train_step;
  ValStepFn val_step_fn = val_step;
  ModelSaveFn model_save_fn = save_flax_model;
  std::shared_ptr<Tracker> logger = {};  ///< none: log entries are only shown
  Schedule scheduler_fn = {};            ///< for the "lr" of log entries; none: that of `args`
  /// Asked after every step; `true` ends `train` there. The state it returns can be saved and
  /// trained on.
  std::function<bool(const TrainState&)> should_stop = {};
  bool show_progress = true;
};

struct CreateStateOptions {
  LossFn loss_fn = {};
  std::optional<std::filesystem::path> ckpt_dir = {};  ///< a checkpoint to go on from
  Key key = Key();                                     ///< for the first step of a new run
};

/// What a checkpoint holds besides the trainer's own functions.
struct Checkpoint {
  int64_t step = 0;
  Params params;
  OptState opt_state;
  Key key = Key();
  double running_loss = 0;
  std::optional<Args> args;  ///< not in a checkpoint that Python wrote
  std::optional<nlohmann::json> collator_settings;
};

/// Reads a checkpoint for a state of the same model and optimizer; `flax_model.msgpack`,
/// `opt_state.msgpack` and `training_state.json` may come from Flax. Throws `Error` G-FN-4,
/// G-FLAX-1, G-FLAX-2, G-IO-1, G-JSON-1.
Checkpoint restore_checkpoint(const std::filesystem::path& directory, const TrainState& like);

/// Training with the state as a value: a step is a pure function of (state, key, batch), and this
/// class only calls it.
///
/// Follows the trainer of the Flax BigBird example. Thread-safety: none.
class Trainer {
 public:
  /// Throws G-FN-2 when a size in `args` is below 1 or a step function is missing.
  explicit Trainer(TrainerOptions options);

  const Args& args() const { return options_.args; }
  const Collator& data_collator() const { return options_.data_collator; }

  /// The state a run starts with. Without `tx` it is `build_tx(args, num_train_steps)`. With
  /// `ckpt_dir` step, parameters, optimizer state, key and running loss come from there, and so do
  /// this trainer's args and the collator's settings. Throws G-FN-2 when a size in those args is
  /// below 1.
  TrainState create_state(const ModelFunction& model, GradientTransformation tx,
                          int64_t num_train_steps, CreateStateOptions options = {});

  /// Trains until `max_epochs` epochs are done, those `state.step` stands for included. Rows are
  /// shuffled with the number of the epoch as seed, in the order of
  /// `datasets.Dataset.shuffle(seed=epoch)`; a last partial batch is left out. Throws G-FN-1 when a
  /// step gives no scalar loss, G-FN-2 when there is not one full batch or the state has no
  /// parameters.
  TrainState train(TrainState state, const DatasetRef& train_data, const DatasetRef& val_data);

  /// The mean of the batches' losses; rows in order, a last partial batch left out.
  double evaluate(const TrainState& state, const DatasetRef& data) const;

  /// Writes `flax_model.msgpack` (by `model_save_fn`), `opt_state.msgpack`, `training_state.json`,
  /// `args.json` and `data_collator.json`; the folder appears under its name when it is complete,
  /// in place of one that was there.
  void save_checkpoint(const std::filesystem::path& directory, const TrainState& state) const;

 private:
  DataLoader loader(const DatasetRef& data, bool shuffle) const;
  /// Evaluates, hands the numbers to the logger and gives the line to show.
  std::string log(const TrainState& state, int64_t steps_of_epoch,
                  const DatasetRef& val_data) const;

  TrainerOptions options_;
};

}  // namespace gradus::functional
