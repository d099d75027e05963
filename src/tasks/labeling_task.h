#pragma once

#include <gradus/tasks/task.h>

#include "tasks/text_data.h"

namespace gradus::tasks {

/// How far the rows of a batch are filled up.
struct PaddingFlags {
  std::optional<int64_t> pad_to_multiple_of = std::nullopt;
};

/// What the tasks that label texts or their words do alike around their own preparation: the flags
/// of model and data, the splits of each stage, and what the trainer is given.
class LabelingTask : public Task {
 public:
  void add_options(OptionSet& options) override;
  void check(const TrainingArguments& args) const override;

 protected:
  struct Splits {
    Split train, validation, test;
  };

  /// Throws G-TASK-9 with `advice` when a stage that `args` asks for has no rows.
  void require_splits(const TrainingArguments& args, const Splits& splits,
                      const std::string& advice) const;
  /// At most --max_train_samples, --max_eval_samples and --max_predict_samples rows from the front.
  Splits limited(Splits splits) const;
  /// Gives the trainer the model and the prepared rows; collator, metrics and what writes
  /// predictions stay as they are.
  void hand_over(PreparedTask& prepared, std::shared_ptr<PreTrainedModel> model,
                 std::shared_ptr<Tokenizer> tokenizer, const Splits& splits) const;

  /// A flag that says to how many tokens rows are cut, and its value.
  struct Cut {
    const char* flag;
    std::optional<int64_t> tokens;
  };
  /// Throws G-CONF-4 for --pad_to_multiple_of where it would do nothing, because all rows have one
  /// length (`pad_to_max_length`), or where the longest rows would become longer than they are cut.
  void check_padding(bool pad_to_max_length, std::initializer_list<Cut> cuts) const;
  /// The lengths of batches are multiples of it: --pad_to_multiple_of, else 8 with fp16, as in
  /// transformers' scripts.
  std::optional<int64_t> length_step(const TrainingArguments& args) const;

  ModelFlags model_;
  DataFlags data_;
  PredictFlags predict_;
  PaddingFlags padding_;
};

}  // namespace gradus::tasks
