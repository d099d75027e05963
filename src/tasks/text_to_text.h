#pragma once

#include "tasks/labeling_task.h"

namespace gradus::tasks {

/// The flags that run_summarization.py and run_translation.py share.
struct TextToTextFlags {
  int64_t max_source_length = 1024;
  int64_t max_target_length = 128;
  std::optional<int64_t> val_max_target_length = std::nullopt;
  bool pad_to_max_length = false;
  std::optional<int64_t> num_beams = 1;
  bool ignore_pad_token_for_loss = true;
  std::optional<std::string> source_prefix = std::nullopt;
  std::optional<std::string> forced_bos_token = std::nullopt;
};

/// The model of the folder, with room for all tokens. Throws G-TASK-15 for one that does not know
/// how a text begins, or has too few positions. `language` is the code of the texts it writes, with
/// which they begin in an mBART folder that does not say it.
std::shared_ptr<PreTrainedModel> load_text_generator(
    const ModelFlags& flags, const Tokenizer& tokenizer, std::optional<int64_t> max_source_length,
    const std::optional<std::string>& language = std::nullopt);
/// Throws G-TEXT-10 when there is no padding token.
int64_t required_pad_id(const Tokenizer& tokenizer);
/// Checks that `code`, the value of a flag, is a token of the tokenizer; throws G-TASK-9.
void check_language(const Tokenizer& tokenizer, const std::string& flag, const std::string& code);
/// Pads sources and targets, to multiples of `length_step`, and shifts the targets for the decoder.
/// `ignore_pad`: padding of targets does not count.
DataCollator text_to_text_collator(const std::shared_ptr<Tokenizer>& tokenizer,
                                   const std::shared_ptr<PreTrainedModel>& model, bool ignore_pad,
                                   std::optional<int64_t> length_step);
/// The texts of rows of ids, without special tokens; -100 counts as padding.
std::vector<std::string> decoded_texts(const Tokenizer& tokenizer, const torch::Tensor& ids,
                                       std::optional<bool> clean_up = std::nullopt);

/// What the tasks that write text from text do alike: rows of source and target, the collator,
/// scores of what was generated, generated_predictions.txt.
class TextToTextTask : public LabelingTask {
 public:
  std::string trainer() const override { return "Seq2SeqTrainer"; }
  void add_options(OptionSet& options) override;
  void check(const TrainingArguments& args) const override;
  PreparedTask prepare(const TrainingArguments& args) override;

 protected:
  /// Source and target of a row; unset when the row is left out.
  using Pair = std::optional<std::pair<std::string, std::string>>;
  using ReadPair = std::function<Pair(const Example& row)>;
  /// Scores of the generated texts, spaces around them removed.
  using Scores = std::function<Metrics(std::vector<std::string> references,
                                       std::vector<std::string> predictions)>;

  /// How rows of a split are read. `first` has the columns that decide about names. `key` is
  /// filled with everything the function depends on.
  virtual ReadPair reader(const Split& first, const Split& split, std::string& key) const = 0;
  /// The scores, and a callback for what they draw from.
  virtual Scores scores(const TrainingArguments& args, PreparedTask& prepared) const = 0;
  /// Whether rows that are filled up are stacked as they are.
  virtual bool stacks_padded_rows() const { return false; }
  /// Whether the mean length is rounded as the scores are.
  virtual bool rounds_length() const { return false; }
  /// The codes of the languages of sources and targets, which multilingual tokenizers need. Throws
  /// G-TASK-9 when the flags do not say them.
  virtual std::pair<std::string, std::string> languages(const Tokenizer& tokenizer) const = 0;
  /// Last changes to the options of generation and to how is evaluated.
  virtual void finish(PreparedTask& prepared) = 0;

  /// --val_max_target_length, or what stands for it.
  int64_t evaluation_length() const {
    return flags_.val_max_target_length.value_or(flags_.max_target_length);
  }

  TextToTextFlags flags_;

 private:
  /// One and the same, but for tokenizers that put a code of the language to a text.
  struct Tokenizers {
    std::shared_ptr<Tokenizer> source, target;
    std::optional<std::string> language;  ///< The target's code, for those.
  };

  Splits open_stages(const TrainingArguments& args) const;
  Tokenizers load_tokenizers() const;
  Split prepare_rows(const Split& first, const Split& split, const Tokenizers& tokenizers,
                     int64_t target_length, int64_t vocabulary, bool progress) const;
};

}  // namespace gradus::tasks
