#include "tasks/trl_task.h"

#include <fmt/format.h>
#include <gradus/core/error.h>

namespace gradus::tasks {
namespace {

constexpr OptionRow<SplitFlags> kSplitRows[] = {
    {&SplitFlags::dataset_train_split, "dataset_train_split", Group::data, any_value(),
     "The split of --dataset_name to train on."},
    {&SplitFlags::dataset_test_split, "dataset_test_split", Group::data, any_value(),
     "The split of --dataset_name to evaluate on."},
};

}  // namespace

TrlTask::TrlTask(ModelTask model, nlohmann::json changes)
    : model_task_(model), changes_(std::move(changes)) {
  fresh_.dtype = "float32";  // as trl's scripts load models
}

void TrlTask::add_options(OptionSet& options) {
  tasks::add_options(options, model_);
  tasks::add_options(options, fresh_);
  tasks::add_options(options, data_);
  options.add(splits_, std::span<const OptionRow<SplitFlags>>(kSplitRows));
}

void TrlTask::check(const TrainingArguments& args) const {
  if (args.do_predict)
    throw Error("G-TASK-3", ErrorKind::usage, fmt::format("the task {} does not predict", name()),
                "Leave --do_predict out; `gradus generate` writes text with a language model.");
  check_data_flags(args, data_, {}, /*splits_train=*/false);
  check_model_flags(model_, {.fresh = &fresh_, .do_train = args.do_train});
}

PreparedTask TrlTask::prepare(const TrainingArguments& args) {
  const auto rows = [&](const std::optional<std::string>& file, const std::string& split,
                        std::optional<int64_t> most) {
    return first_rows(open_split(data_, file, split), most).reference();
  };
  PreparedTask prepared;
  auto& trainer = prepared.trainer;
  trainer.processing_class = load_tokenizer(model_);
  trainer.model = load_model(model_task_, model_, fresh_, changes_);
  trainer.train_dataset =
      rows(data_.train_file, splits_.dataset_train_split, data_.max_train_samples);
  if (args.do_eval)
    trainer.eval_dataset =
        rows(data_.validation_file, splits_.dataset_test_split, data_.max_eval_samples);
  // `gradus eval` has no training rows, but these trainers want some.
  if (!args.do_train) trainer.train_dataset = trainer.eval_dataset.single();
  auto adapter = lora_config(model_.adapter, "CAUSAL_LM");  // as in trl's ModelConfig
  if (adapter) adapter->base_model_name_or_path = model_.model_name_or_path;
  prepared.make_trainer = [this, adapter](TrainerOptions options) {
    return make(std::move(options), adapter);
  };
  return prepared;
}

}  // namespace gradus::tasks
