#include "tasks/labeling_task.h"

#include <fmt/format.h>
#include <gradus/core/error.h>

namespace gradus::tasks {

namespace {

constexpr OptionRow<PaddingFlags> kPaddingRows[] = {
    {&PaddingFlags::pad_to_multiple_of, "pad_to_multiple_of", Group::data, at_least(1),
     "Fill batches up to a multiple of so many tokens: fewer lengths, each of which a GPU records. "
     "Unset: to the longest row, with fp16 to a multiple of 8.",
     Origin::gradus},
};

}  // namespace

void LabelingTask::add_options(OptionSet& options) {
  tasks::add_options(options, model_);
  tasks::add_options(options, data_);
  tasks::add_options(options, predict_);
  options.add(padding_, std::span<const OptionRow<PaddingFlags>>(kPaddingRows));
}

void LabelingTask::check_padding(bool pad_to_max_length, std::initializer_list<Cut> cuts) const {
  const auto step = padding_.pad_to_multiple_of;
  if (!step) return;
  if (pad_to_max_length)
    throw Error("G-CONF-4", ErrorKind::usage,
                fmt::format("pad_to_multiple_of is {}, but pad_to_max_length fills all rows up to "
                            "one length",
                            *step),
                "Add --no_pad_to_max_length, or leave --pad_to_multiple_of out.");
  for (const auto& [flag, tokens] : cuts)
    if (tokens && *tokens % *step != 0)
      throw Error("G-CONF-4", ErrorKind::usage,
                  fmt::format("{} is {}, no multiple of pad_to_multiple_of {}: the longest rows "
                              "would be filled up beyond it",
                              flag, *tokens, *step),
                  fmt::format("Set --{} to a multiple of {}.", flag, *step));
}

std::optional<int64_t> LabelingTask::length_step(const TrainingArguments& args) const {
  if (padding_.pad_to_multiple_of) return padding_.pad_to_multiple_of;
  return args.fp16 ? std::optional<int64_t>(8) : std::nullopt;
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
