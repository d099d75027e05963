// trl's sft.py: supervised fine-tuning of a language model.
#include <gradus/core/error.h>
#include <gradus/trainers/sft.h>

#include "tasks/adapter_flags.h"
#include "tasks/registry.h"
#include "tasks/text_data.h"

namespace gradus {
namespace tasks {
namespace {

struct SplitFlags {
  std::string dataset_train_split = "train";
  std::string dataset_test_split = "test";
};
constexpr OptionRow<SplitFlags> kSplitRows[] = {
    {&SplitFlags::dataset_train_split, "dataset_train_split", Group::data, any_value(),
     "The split of --dataset_name to train on."},
    {&SplitFlags::dataset_test_split, "dataset_test_split", Group::data, any_value(),
     "The split of --dataset_name to evaluate on."},
};

class SupervisedFineTuning : public Task {
 public:
  // As trl's scripts load models.
  SupervisedFineTuning() { fresh_.dtype = "float32"; }

  std::string name() const override { return "sft"; }
  std::string trainer() const override { return "SFTTrainer"; }

  void add_options(OptionSet& options) override {
    tasks::add_options(options, model_);
    tasks::add_options(options, fresh_);
    tasks::add_options(options, adapter_);
    tasks::add_options(options, data_);
    options.add(splits_, std::span<const OptionRow<SplitFlags>>(kSplitRows));
  }

  void check(const TrainingArguments& args) const override {
    if (args.do_predict)
      throw Error("G-TASK-3", ErrorKind::usage, "the task sft does not predict",
                  "Leave --do_predict out; `gradus generate` writes text with the model.");
    check_data_flags(args, data_, {}, /*splits_train=*/false);
    check_model_flags(model_, {.fresh = &fresh_, .do_train = args.do_train});
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    const auto tokenizer = load_tokenizer(model_);
    const auto model = load_model(ModelTask::causal_lm, model_, fresh_, nullptr);
    PreparedTask prepared;
    auto& trainer = prepared.trainer;
    trainer.model = model;
    trainer.processing_class = tokenizer;
    trainer.train_dataset =
        first_rows(open_split(data_, data_.train_file, splits_.dataset_train_split),
                   data_.max_train_samples)
            .reference();
    if (args.do_eval)
      trainer.eval_dataset =
          first_rows(open_split(data_, data_.validation_file, splits_.dataset_test_split),
                     data_.max_eval_samples)
              .reference();
    auto adapter = lora_config(adapter_);
    if (adapter) adapter->base_model_name_or_path = model_.model_name_or_path;
    prepared.make_trainer = [this, adapter](TrainerOptions options) {
      auto sft = sft_options(std::move(options), arguments().as<SFTConfig>());
      sft.peft_config = adapter;
      return std::make_unique<SFTTrainer>(std::move(sft));
    };
    return prepared;
  }

 private:
  ModelFlags model_;
  FreshModelFlags fresh_;
  AdapterFlags adapter_;
  DataFlags data_;
  SplitFlags splits_;
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_sft() { return std::make_unique<tasks::SupervisedFineTuning>(); }

}  // namespace gradus
