// run_clm.py: predict the next token.
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/collators.h>
#include <gradus/data/token_file.h>

#include "tasks/default_config.h"
#include "tasks/language_modeling.h"
#include "tasks/registry.h"

namespace gradus {
namespace tasks {
namespace {

struct CausalFlags {
  std::optional<int64_t> block_size = std::nullopt;
  bool keep_linebreaks = true;
};
constexpr OptionRow<CausalFlags> kCausalRows[] = {
    {&CausalFlags::block_size, "block_size", Group::data, at_least(1),
     "Tokens per row; unset: what tokenizer and model allow, at most 1024 where the tokenizer does "
     "not say."},
    {&CausalFlags::keep_linebreaks, "keep_linebreaks", Group::data, any_value(),
     "Lines of text files keep their line break."},
};

bool is_token_file(const std::string& file) { return file.ends_with(".bin"); }

int64_t pick_block_size(std::optional<int64_t> wanted, const Tokenizer* tokenizer,
                        int64_t positions) {
  const auto longest = tokenizer != nullptr ? tokenizer->model_max_length() : std::nullopt;
  if (!wanted) {
    if (longest && *longest <= positions) return *longest;
    const auto block = std::min<int64_t>(1024, positions);
    if (tokenizer != nullptr)
      log_warning(fmt::format(
          "The chosen tokenizer supports a `model_max_length` that is longer than the default "
          "`block_size` value of 1024. Using block_size={}, which --block_size changes.",
          block));
    return block;
  }
  if (longest && *wanted > *longest)
    log_warning(
        fmt::format("The block_size passed ({}) is larger than the maximum length for the model "
                    "({}). Using block_size={}.",
                    *wanted, *longest, *longest));
  return longest ? std::min(*wanted, *longest) : *wanted;
}

class CausalLanguageModeling : public LanguageModeling {
 public:
  std::string name() const override { return "causal-lm"; }

  void add_options(OptionSet& options) override {
    LanguageModeling::add_options(options);
    options.add(causal_, std::span<const OptionRow<CausalFlags>>(kCausalRows));
  }

  void check(const TrainingArguments& args) const override {
    check_data_flags(args, data_, predict_, /*splits_train=*/true);
    const auto files = used_files(args);
    for (const auto& file : files)
      if (is_token_file(file.name) != is_token_file(files.front().name))
        throw Error("G-TASK-9", ErrorKind::usage,
                    fmt::format("--{} {} and --{} {} are of different kinds: expected tokens "
                                "(.bin) in both or in none",
                                files.front().flag, files.front().name, file.flag, file.name),
                    "Turn the text into tokens with `gradus tokenize`.");
    check_model_flags(
        model_, {.fresh = &fresh_, .do_train = args.do_train, .tokenizer = !reads_tokens(args)});
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    const bool from_tokens = reads_tokens(args);
    const LoadOptions reading{.keep_linebreaks = causal_.keep_linebreaks};
    LanguageSplits splits;
    if (!from_tokens) {
      splits = open_language_splits(args, data_, language_, reading);
      splits.test = open_test(args, reading);
    }
    const auto tokenizer = load_tokenizer(model_);
    const auto model = load_model(ModelTask::causal_lm, model_, fresh_, nullptr);
    if (tokenizer) grow_embeddings(*model, *tokenizer);
    const auto positions = max_positions(model->config_json());
    const auto block_size = pick_block_size(causal_.block_size, tokenizer.get(), positions);
    if (block_size > positions)
      log_warning(fmt::format("block_size is {}, but the model was made for at most {} positions.",
                              block_size, positions));
    if (from_tokens) splits = open_token_splits(args, block_size, embedding_rows(*model));

    PreparedTask prepared;
    auto& trainer = prepared.trainer;
    trainer.data_collator = default_data_collator;
    for (auto* split : {&splits.train, &splits.validation, &splits.test}) {
      if (!*split || from_tokens) continue;
      if (is_tokenized(*split)) {
        *split = tokenized_rows(std::move(*split), embedding_rows(*model), /*copy_labels=*/true);
        if (tokenizer && tokenizer->pad_token_id())
          trainer.data_collator = DataCollatorForTokenClassification({.tokenizer = tokenizer});
        continue;
      }
      *split = prepare_split(*split,
                             tokenize_and_group(tokenizer, text_column_of(*split), split->where,
                                                block_size, {}, /*with_labels=*/true),
                             {.task = name(),
                              .settings = fmt::format("{} {} {}", text_column_of(*split),
                                                      block_size, causal_.keep_linebreaks),
                              .wanted = fmt::format("at least one block of {} tokens", block_size)},
                             model_, data_, !args.disable_tqdm.value_or(false));
    }
    hand_over(prepared, model, tokenizer, splits, LabelOf::next_position);
    return prepared;
  }

 private:
  struct NamedFile {
    const char* flag;
    std::string name;
  };
  // The files that the stages of `args` read.
  std::vector<NamedFile> used_files(const TrainingArguments& args) const {
    std::vector<NamedFile> files;
    const auto add = [&](bool used, const char* flag, const std::optional<std::string>& name) {
      if (used && name) files.push_back({flag, *name});
    };
    const bool splits_train = args.do_eval && !data_.validation_file;
    add(args.do_train || splits_train, "train_file", data_.train_file);
    add(args.do_eval, "validation_file", data_.validation_file);
    add(args.do_predict, "test_file", predict_.test_file);
    return files;
  }
  bool reads_tokens(const TrainingArguments& args) const {
    const auto files = used_files(args);
    return !files.empty() && is_token_file(files.front().name);
  }

  Split token_split(const std::string& file, int64_t block_size, int64_t vocabulary) const {
    const auto windows = token_windows(resolve_data_files(file, {.format = "tokens"}),
                                       {.block_size = block_size, .vocab_size = vocabulary});
    return {.rows = windows, .where = file, .key = {}, .columns = windows->columns()};
  }

  // Blocks of token files; the validation share is cut in whole blocks.
  LanguageSplits open_token_splits(const TrainingArguments& args, int64_t block_size,
                                   int64_t vocabulary) const {
    LanguageSplits splits;
    if (args.do_predict) splits.test = token_split(*predict_.test_file, block_size, vocabulary);
    if (data_.validation_file && args.do_eval)
      splits.validation = token_split(*data_.validation_file, block_size, vocabulary);
    if (!data_.train_file || (!args.do_train && !args.do_eval)) return splits;
    splits.train = token_split(*data_.train_file, block_size, vocabulary);
    if (data_.validation_file || !args.do_eval) return splits;
    const auto blocks = splits.train.rows->size(),
               border = std::max<int64_t>(blocks * language_.validation_split_percentage / 100, 1);
    splits.validation = row_range(splits.train, 0, border);
    splits.train = row_range(std::move(splits.train), border, blocks);
    return splits;
  }

  CausalFlags causal_;
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_causal_lm() { return std::make_unique<tasks::CausalLanguageModeling>(); }

}  // namespace gradus
