#include <gradus/device/runtime.h>
#include <gradus/models/layers/no_dropout.h>
#include <gradus/trainers/preference_trainer.h>

#include "trainers/preference_setup.h"
#include "trainers/reference_columns.h"

namespace gradus {

using torch::Tensor;

PreparedPreferences prepare_preferences(TrainerOptions options, const PreferenceKind& kind) {
  refuse_unused({{"compute_loss_func", bool(options.compute_loss_func)}}, kind.who);
  const auto tokenizer = trl_tokenizer(options.processing_class, kind.tokenizer, kind.who);
  options.processing_class = tokenizer;
  device::seed_all(options.args.seed);  // the adapter's matrices are random
  options.model = kind.model(*tokenizer);
  if (!options.data_collator) options.data_collator = kind.collator(*tokenizer->pad_token_id());
  const PreferencePreparation how{.tokenizer = tokenizer,
                                  .who = kind.who,
                                  .max_length = kind.max_length,
                                  .keeps_end = kind.keeps_end,
                                  .longest = longest_input(*options.model)};
  PreparedPreferences prepared;
  prepared.prepare_rows = [how, make = kind.make_tokens](const DatasetRef& rows,
                                                         const std::string& name) {
    return make(rows, how, name);
  };
  prepare_sets(options, kind.who, prepared.prepare_rows);
  prepared.options = std::move(options);
  return prepared;
}

PreferenceTrainer::PreferenceTrainer(PreferenceSetup setup, nlohmann::ordered_json arguments)
    : TrlTrainer(std::move(setup.prepared.options), std::move(arguments)),
      setup_(std::make_unique<PreferenceSetup>(std::move(setup))) {
  loss_is_scaled_for_ga = false;
  if (const auto own = setup_->reference.own_model()) own->to(device());
  if (setup_->sync) add_callback(setup_->sync);
  set_prepare_rows(setup_->prepared.prepare_rows);
}

PreferenceTrainer::~PreferenceTrainer() = default;

void PreferenceTrainer::ask_reference_once() {
  if (!setup_->asks_once) return;
  model().to(device());  // frozen weights may still be on the host
  compute_columns([this](const DatasetRef& rows, const std::string& name) {
    return with_reference(rows, name);
  });
  // The model itself answers for the reference only as long as it has not been trained.
  if (setup_->reference.own_model() == model_ptr()) setup_->reference = {};
  set_prepare_rows([this](const DatasetRef& rows, const std::string& name) {
    return with_reference(setup_->prepared.prepare_rows(rows, name), name);
  });
}

DatasetRef PreferenceTrainer::with_reference(const DatasetRef& rows,
                                             const std::string& name) const {
  ReferenceColumns columns{.names = setup_->columns};
  columns.compute = [this](const std::vector<Example>& batch) {
    const auto inputs = prepare_inputs(collator()(batch));
    const auto precision = compute_loss_context_manager();
    return ask(inputs);
  };
  const auto usual = name == "train_dataset" ? args().per_device_train_batch_size
                                             : args().per_device_eval_batch_size;
  columns.batch_size = setup_->rows_at_once.value_or(usual);
  const auto& reference = setup_->reference;
  const auto own = reference.own_model();
  columns.reference = reference ? (own ? own : model_ptr()).get() : nullptr;
  columns.settings = setup_->settings + " " + args().mixed_precision();
  columns.group = processes();
  return with_reference_columns(rows, columns, name);
}

std::vector<Tensor> PreferenceTrainer::ask(const Batch& inputs) const {
  const torch::NoGradGuard no_grad;
  const layers::NoDropout no_dropout(setup_->disable_dropout);
  return reference_log_probs(inputs, setup_->reference);
}

std::vector<Tensor> PreferenceTrainer::by_reference(const Batch& inputs) const {
  if (!setup_->asks_once) return ask(inputs);
  std::vector<Tensor> known;
  for (const auto& column : setup_->columns) known.push_back(inputs[column]);
  return known;
}

}  // namespace gradus
