#include <gradus/config/training_options.h>
#include <gradus/core/json.h>

#include <array>

#include "config/training_rows.h"

namespace gradus {
namespace {

constexpr std::string_view kTrainingFields[] = {
#define GRADUS_FIELD(type, name, ...) #name,
#include <gradus/config/training_arguments_fields.inc>
};
constexpr std::string_view kSeq2SeqFields[] = {
#define GRADUS_FIELD(type, name, ...) #name,
#include <gradus/config/seq2seq_arguments_fields.inc>
#undef GRADUS_FIELD
};

// Rows and fields are the same, name by name.
template <class Row, size_t Rows, size_t Fields>
consteval bool agree(const Row (&rows)[Rows], const std::string_view (&fields)[Fields]) {
  if (Rows != Fields) return false;
  for (size_t i = 0; i < Rows; ++i)
    if (rows[i].name != fields[i]) return false;
  return true;
}
static_assert(agree(config::kTrainingRows<TrainingArguments>, kTrainingFields),
              "training_rows.h and training_arguments_fields.inc differ");
static_assert(agree(config::kSeq2SeqRows<Seq2SeqTrainingArguments>, kSeq2SeqFields),
              "training_rows.h and seq2seq_arguments_fields.inc differ");

template <class Row, size_t... N>
constexpr auto join(const Row (&... tables)[N]) {
  std::array<Row, (N + ...)> all{};
  size_t at = 0;
  const auto take = [&](const auto& table) {
    for (const auto& row : table) all[at++] = row;
  };
  (take(tables), ...);
  return all;
}

constexpr auto kTraining =
    join<OptionRow<TrainingArguments>>(config::kTrainingRows<TrainingArguments>);
constexpr auto kSeq2Seq =
    join<OptionRow<Seq2SeqTrainingArguments>>(config::kTrainingRows<Seq2SeqTrainingArguments>,
                                              config::kSeq2SeqRows<Seq2SeqTrainingArguments>);

constexpr std::string_view kPageHead =
    "# Options\n\n"
    "Every option of `TrainingArguments` and its sequence-to-sequence additions. This page is made "
    "from the option table by `make docs`;\n"
    "edit src/config/training_rows.h instead.\n\n"
    "An option is a struct member in C++ (`TrainingArguments{.learning_rate = 1e-4}`), a flag on "
    "the command line (`--learning_rate 1e-4`,\n"
    "`--learning-rate=1e-4`; switches as `--bf16`, `--bf16 false`, `--no_bf16`; lists as "
    "`--label_names a b`; dictionaries as JSON) and a key in\n"
    "a YAML or JSON config file. Flags win over the file, the file over defaults. Names and "
    "meanings are those of transformers, except for\n"
    "the group \"Options of gradus\".\n";

template <class Args, class Use>
auto with_defaults(std::span<const OptionRow<Args>> rows, Use use) {
  Args defaults;
  OptionSet options;
  options.add(defaults, rows);
  return use(options);
}

}  // namespace

std::span<const OptionRow<TrainingArguments>> training_options() { return kTraining; }
std::span<const OptionRow<Seq2SeqTrainingArguments>> seq2seq_training_options() { return kSeq2Seq; }

std::string options_text() {
  return with_defaults(training_options(), [](const OptionSet& options) { return options.help(); });
}

std::string options_json() {
  return with_defaults(training_options(), [](const OptionSet& options) {
    return dump_json(options.describe(), 2) + "\n";
  });
}

std::string options_markdown() {
  return std::string(kPageHead) +
         with_defaults(seq2seq_training_options(),
                       [](const OptionSet& options) { return options.markdown(); });
}

}  // namespace gradus
