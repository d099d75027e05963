#pragma once

#include <gradus/train/trainer_options.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainers/preference_data.h"
#include "trainers/reference_policy.h"
#include "trainers/trl_options.h"

namespace gradus {

/// What sets the trainers of reward models, DPO and KTO apart before training.
struct PreferenceKind {
  std::string who = {};              ///< The trainer's name in messages.
  TokenizerSettings tokenizer = {};  ///< Of the arguments.
  std::optional<int64_t> max_length = {};
  bool keeps_end = false;  ///< What is longer than `max_length` loses its beginning.
  /// The model to train.
  std::function<std::shared_ptr<Model>(const Tokenizer& tokenizer)> model = nullptr;
  /// The collator, where the user gives none.
  std::function<DataCollator(int64_t pad_token_id)> collator = nullptr;
  /// Makes tokens of the rows of a set with a name.
  std::function<DatasetRef(const DatasetRef& rows, const PreferencePreparation& how,
                           const std::string& name)>
      make_tokens = nullptr;
};

/// Options for the base class, and what prepares the rows of a set.
struct PreparedPreferences {
  TrainerOptions options = {};
  std::function<DatasetRef(const DatasetRef& rows, const std::string& name)> prepare_rows = nullptr;
};

/// Prepares tokenizer, model, collator and data. `options` are those of `plain_options`. Throws
/// `Error` G-TRL-1 for options that contradict each other, G-TRL-2 for rows that cannot be used.
PreparedPreferences prepare_preferences(TrainerOptions options, const PreferenceKind& kind);

/// What a `PreferenceTrainer` is built from.
struct PreferenceSetup {
  PreparedPreferences prepared = {};
  ReferencePolicy reference = {};            ///< None once its numbers are in the rows.
  std::vector<std::string> columns = {};     ///< What the rows call its numbers.
  std::string settings = {};                 ///< What these depend on beside rows and weights.
  bool asks_once = false;                    ///< `precompute_ref_log_probs`
  std::optional<int64_t> rows_at_once = {};  ///< Then; unset: those of a batch.
  bool disable_dropout = true;               ///< Of the reference, too.
  std::shared_ptr<SyncRefModelCallback> sync = nullptr;  ///< `sync_ref_model`; null without it.
};

/// The setup of a trainer with prepared data, and the reference of `given` and `args`.
template <class Given, class Config>
PreferenceSetup preference_setup(PreparedPreferences prepared, const Given& given,
                                 const Config& args, const std::string& who) {
  PreferenceSetup setup{.prepared = std::move(prepared)};
  setup.reference = reference_to_use(setup.prepared.options.model, given.ref_model,
                                     {.adapter_is_new = given.peft_config.has_value(),
                                      .asked_once = args.precompute_ref_log_probs,
                                      .is_synced = args.sync_ref_model},
                                     who);
  setup.asks_once = args.precompute_ref_log_probs;
  setup.rows_at_once = args.precompute_ref_batch_size;
  setup.disable_dropout = args.disable_dropout;
  if (args.sync_ref_model)
    setup.sync = std::make_shared<SyncRefModelCallback>(
        setup.reference.own_model(), args.ref_model_mixup_alpha, args.ref_model_sync_steps);
  return setup;
}

}  // namespace gradus
