// run_mlm.py: predict tokens that were masked.
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/collators.h>

#include "tasks/language_modeling.h"
#include "tasks/registry.h"

namespace gradus {
namespace tasks {
namespace {

struct MaskedFlags {
  std::optional<int64_t> max_seq_length = std::nullopt;
  double mlm_probability = 0.15;
  bool line_by_line = false;
  bool pad_to_max_length = false;
};
constexpr OptionRow<MaskedFlags> kMaskedRows[] = {
    {&MaskedFlags::max_seq_length, "max_seq_length", Group::data, at_least(1),
     "Tokens per row at most; unset: what the tokenizer says, at most 1024."},
    {&MaskedFlags::mlm_probability, "mlm_probability", Group::data, within(0, 1),
     "Share of the tokens that are masked."},
    {&MaskedFlags::line_by_line, "line_by_line", Group::data, any_value(),
     "Each row of the data is a row of its own; else all text is cut into rows of max_seq_length."},
    {&MaskedFlags::pad_to_max_length, "pad_to_max_length", Group::data, any_value(),
     "With line_by_line: fill all rows up to max_seq_length; else to the longest of a batch."},
};

int64_t pick_sequence_length(std::optional<int64_t> wanted, const Tokenizer& tokenizer) {
  const auto longest = tokenizer.model_max_length();
  if (!wanted) {
    if (longest && *longest <= 1024) return *longest;
    log_warning(
        "The chosen tokenizer supports a `model_max_length` that is longer than the default "
        "`block_size` value of 1024. Using max_seq_length=1024, which --max_seq_length changes.");
    return 1024;
  }
  if (longest && *wanted > *longest)
    log_warning(
        fmt::format("The max_seq_length passed ({}) is larger than the maximum length for the "
                    "model ({}). Using max_seq_length={}.",
                    *wanted, *longest, *longest));
  return longest ? std::min(*wanted, *longest) : *wanted;
}

// Python's str.isspace for one character.
bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_blank(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t code = bytes == 1 ? lead : lead & (0xFFu >> (bytes + 1));
    for (size_t k = 1; k < bytes && i + k < text.size(); ++k)
      code = (code << 6) | (static_cast<unsigned char>(text[i + k]) & 0x3Fu);
    if (!is_space(code)) return false;
    i += bytes;
  }
  return true;
}

MapFunction tokenize_lines(std::shared_ptr<const Tokenizer> tokenizer, std::string column,
                           std::string where, EncodeOptions encode) {
  encode.ids_only = true;
  return [=](std::vector<Example> rows) {
    std::vector<std::string> lines;
    for (const auto& row : rows)
      if (const auto& line = text_of(row, column, where); !is_blank(line)) lines.push_back(line);
    std::vector<Example> tokens;
    for (const auto& encoding : tokenizer->encode_batch(lines, encode, {}, 1))
      tokens.push_back(encoding.example());
    return tokens;
  };
}

class MaskedLanguageModeling : public LanguageModeling {
 public:
  std::string name() const override { return "masked-lm"; }

  void add_options(OptionSet& options) override {
    LanguageModeling::add_options(options);
    options.add(masked_, std::span<const OptionRow<MaskedFlags>>(kMaskedRows));
  }

  void check(const TrainingArguments& args) const override {
    check_data_flags(args, data_, predict_, /*splits_train=*/true);
    check_model_flags(model_, {.fresh = &fresh_, .do_train = args.do_train});
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    auto splits = open_language_splits(args, data_, language_, {});
    splits.test = open_test(args, {});
    const auto tokenizer = load_tokenizer(model_);
    const auto model = load_model(ModelTask::masked_lm, model_, fresh_, nullptr);
    grow_embeddings(*model, *tokenizer);
    const auto length = pick_sequence_length(masked_.max_seq_length, *tokenizer);

    PreparedTask prepared;
    auto& trainer = prepared.trainer;
    bool masked_already = false;
    for (auto* split : {&splits.train, &splits.validation, &splits.test}) {
      if (!*split) continue;
      if (is_tokenized(*split)) {
        const auto names = split->column_names();
        masked_already |= std::find(names.begin(), names.end(), "labels") != names.end();
        *split = tokenized_rows(std::move(*split), embedding_rows(*model), /*copy_labels=*/false);
      } else {
        *split = prepare(*split, tokenizer, length, args);
      }
    }
    if (masked_already)
      trainer.data_collator = DataCollatorForTokenClassification({.tokenizer = tokenizer});
    else
      trainer.data_collator =
          DataCollatorForLanguageModeling({.tokenizer = tokenizer,
                                           .mlm_probability = masked_.mlm_probability,
                                           .pad_to_multiple_of = multiple_of(args)});
    hand_over(prepared, model, tokenizer, splits, LabelOf::this_position);
    return prepared;
  }

 private:
  std::optional<int64_t> multiple_of(const TrainingArguments& args) const {
    return masked_.line_by_line && args.fp16 && !masked_.pad_to_max_length
               ? std::optional<int64_t>(8)
               : std::nullopt;
  }

  Split prepare(const Split& split, const std::shared_ptr<Tokenizer>& tokenizer, int64_t length,
                const TrainingArguments& args) const {
    const auto column = text_column_of(split);
    EncodeOptions encode{.return_special_tokens_mask = true};
    if (masked_.line_by_line) {
      encode.max_length = length;
      encode.truncation = true;
      if (masked_.pad_to_max_length) encode.padding = "max_length";
    }
    const auto function = masked_.line_by_line
                              ? tokenize_lines(tokenizer, column, split.where, encode)
                              : tokenize_and_group(tokenizer, column, split.where, length, encode,
                                                   /*with_labels=*/false);
    return prepare_split(
        split, function,
        {.task = name(),
         .settings = fmt::format("{} {} {} {}", column, length, masked_.line_by_line,
                                 masked_.pad_to_max_length),
         .wanted = masked_.line_by_line ? "at least one line that is not blank"
                                        : fmt::format("at least one row of {} tokens", length)},
        model_, data_, !args.disable_tqdm.value_or(false));
  }

  MaskedFlags masked_;
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_masked_lm() { return std::make_unique<tasks::MaskedLanguageModeling>(); }

}  // namespace gradus
