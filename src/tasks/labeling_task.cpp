#include "tasks/labeling_task.h"

#include <fmt/format.h>
#include <gradus/core/error.h>

namespace gradus::tasks {

void LabelingTask::add_options(OptionSet& options) {
  tasks::add_options(options, model_);
  tasks::add_options(options, data_);
  tasks::add_options(options, predict_);
}

void LabelingTask::check(const TrainingArguments& args) const {
  check_data_flags(args, data_, predict_, /*splits_train=*/false);
  check_model_flags(model_, {.do_train = args.do_train});
}

void LabelingTask::require_splits(const TrainingArguments& args, const Splits& splits,
                                  const std::string& advice) const {
  const auto need = [&](bool wanted, const Split& split, const char* what) {
    if (wanted && !split)
      throw Error("G-TASK-9", ErrorKind::data,
                  fmt::format("--{} requires data that {} does not hold", what,
                              data_.dataset_name.value_or("the data set")),
                  advice);
  };
  need(args.do_train, splits.train, "do_train");
  need(args.do_eval, splits.validation, "do_eval");
  need(args.do_predict, splits.test, "do_predict");
}

LabelingTask::Splits LabelingTask::limited(Splits splits) const {
  return {first_rows(std::move(splits.train), data_.max_train_samples),
          first_rows(std::move(splits.validation), data_.max_eval_samples),
          first_rows(std::move(splits.test), predict_.max_predict_samples)};
}

void LabelingTask::hand_over(PreparedTask& prepared, std::shared_ptr<PreTrainedModel> model,
                             std::shared_ptr<Tokenizer> tokenizer, const Splits& splits) const {
  prepared.trainer.model = with_adapter(std::move(model), model_);
  prepared.trainer.processing_class = std::move(tokenizer);
  prepared.trainer.train_dataset = splits.train.reference();
  prepared.trainer.eval_dataset = splits.validation.reference();
  prepared.predict_dataset = splits.test.reference();
}

}  // namespace gradus::tasks
