#pragma once

#include <gradus/tasks/task.h>

#include "tasks/text_data.h"

namespace gradus::tasks {

/// What causal and masked language modelling share: run_clm.py and run_mlm.py differ in blocks,
/// collator and little else.
struct LanguageFlags {
  int64_t validation_split_percentage = 5;
  bool streaming = false;
};
void add_options(OptionSet& options, LanguageFlags& flags);

struct LanguageSplits {
  Split train = {}, validation = {}, test = {};
};
/// Opens what `args` asks for to train and evaluate on. Without validation rows of their own the
/// first share of the training rows is taken, cut at round(percentage · rows / 100) with halves to
/// even.
LanguageSplits open_language_splits(const TrainingArguments& args, const DataFlags& data,
                                    const LanguageFlags& flags, const LoadOptions& options);

/// Column `text`, else the first. Throws G-SRC-7 when it holds no text.
std::string text_column_of(const Split& split);
/// Whether rows hold ids already (column `input_ids`): they are taken as they are.
bool is_tokenized(const Split& split);

/// The columns of all rows behind each other, cut into rows of `block_size`; what is left at the
/// end goes.
std::vector<Example> group_texts(const std::vector<Example>& rows, int64_t block_size);

/// Tokenises (with `encode`) and groups, as the scripts' two maps do.
MapFunction tokenize_and_group(std::shared_ptr<const Tokenizer> tokenizer, std::string column,
                               std::string where, int64_t block_size, EncodeOptions encode,
                               bool with_labels);

/// Rows with ids of their own, checked when they are read; `labels` become a copy of the ids where
/// `copy_labels`.
Split tokenized_rows(Split split, int64_t embedding_rows, bool copy_labels);

/// Which label the prediction of a position is compared with: its own (masked), or that of the next
/// position (causal).
enum class LabelOf { this_position, next_position };

/// What both tasks do alike around their own preparation: the flags of model and data, and what the
/// trainer is given.
class LanguageModeling : public Task {
 public:
  void add_options(OptionSet& options) override;

 protected:
  /// The rows to predict on: --test_file, or the split `test` of the data set; without rows when
  /// `args` does not ask for predictions. Throws G-TASK-9 when the data set has none.
  Split open_test(const TrainingArguments& args, const LoadOptions& options) const;
  /// Gives the trainer the model, the prepared rows (at most --max_train_samples,
  /// --max_eval_samples and --max_predict_samples of them), the token accuracy and the perplexity;
  /// the collator stays as it is.
  void hand_over(PreparedTask& prepared, std::shared_ptr<PreTrainedModel> model,
                 std::shared_ptr<Tokenizer> tokenizer, const LanguageSplits& splits,
                 LabelOf label) const;

  ModelFlags model_;
  FreshModelFlags fresh_;
  DataFlags data_;
  PredictFlags predict_;
  LanguageFlags language_;
};

}  // namespace gradus::tasks
