#include <gradus/config/training_options.h>
#include <gradus/core/json.h>

#include "config/training_rows.h"

namespace gradus {
namespace {

constexpr std::string_view kTrainingFields[] = {
#define GRADUS_FIELD(type, name, ...) #name,
#include <gradus/config/training_arguments_fields.inc>
};

// Rows and fields are the same, name by name.
template <class Row, size_t Rows, size_t Fields>
consteval bool agree(const Row (&rows)[Rows], const std::string_view (&fields)[Fields]) {
  if (Rows != Fields) return false;
  for (size_t i = 0; i < Rows; ++i)
    if (rows[i].name != fields[i]) return false;
  return true;
}
static_assert(agree(config::kTrainingRows, kTrainingFields),
              "training_rows.h and training_arguments_fields.inc differ");

constexpr std::string_view kPageHead =
    "# Options\n\n"
    "Every option of `TrainingArguments`, then those that single trainers add. This page is made "
    "from the option tables by `make docs`;\n"
    "edit src/config/training_rows.h or the trainer's own file instead.\n\n"
    "An option is a struct member in C++ (`TrainingArguments{.learning_rate = 1e-4}`), a flag on "
    "the command line (`--learning_rate 1e-4`,\n"
    "`--learning-rate=1e-4`; switches as `--bf16`, `--bf16 false`, `--no_bf16`; lists as "
    "`--label_names a b`; dictionaries as JSON) and a key in\n"
    "a YAML or JSON config file. Flags win over the file, the file over defaults. Names and "
    "meanings are those of transformers, except for\n"
    "the group \"Options of gradus\".\n";

template <class Use>
auto with_defaults(Use use) {
  TrainingArguments defaults;
  OptionSet options;
  options.add(defaults, training_options());
  return use(options);
}

}  // namespace

std::span<const OptionRow<TrainingArguments>> training_options() { return config::kTrainingRows; }

std::string options_text() {
  return with_defaults([](const OptionSet& options) { return options.help(); });
}

std::string options_json() {
  return with_defaults(
      [](const OptionSet& options) { return dump_json(options.describe(), 2) + "\n"; });
}

std::string options_markdown() {
  return std::string(kPageHead) +
         with_defaults([](const OptionSet& options) { return options.markdown(); });
}

}  // namespace gradus
