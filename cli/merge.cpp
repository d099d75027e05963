#include <fmt/format.h>
#include <gradus/config/option_set.h>
#include <gradus/core/error.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/peft_model.h>
#include <gradus/text/tokenizer.h>

#include <filesystem>

#include "cli.h"
#include "reference.h"

namespace gradus::cli {
namespace {

namespace fs = std::filesystem;

struct MergeFlags {
  std::optional<std::string> model_name_or_path = std::nullopt;
  std::optional<std::string> adapter_name_or_path = std::nullopt;
  std::optional<std::string> output_dir = std::nullopt;
};
constexpr OptionRow<MergeFlags> kMergeRows[] = {
    {&MergeFlags::model_name_or_path, "model_name_or_path", Group::model, any_value(),
     "Folder of the base model; unset: the one that adapter_config.json names."},
    {&MergeFlags::adapter_name_or_path, "adapter_name_or_path", Group::model, any_value(),
     "Folder of the adapter."},
    {&MergeFlags::output_dir, "output_dir", Group::output, any_value(),
     "Folder of the merged model."},
};

constexpr const char* kMergeUsage =
    "usage: gradus merge --adapter_name_or_path DIR --output_dir DIR [--model_name_or_path DIR]";

[[noreturn]] void refuse_merge(const std::string& message) {
  throw Error("G-CLI-4", ErrorKind::usage, message, kMergeUsage);
}

/// The head that an adapter's task_type stands for.
ModelTask task_of_adapter(const LoraConfig& config) {
  if (config.task_type == "SEQ_CLS") return ModelTask::sequence_classification;
  if (config.task_type == "TOKEN_CLS") return ModelTask::token_classification;
  if (config.task_type == "QUESTION_ANS") return ModelTask::question_answering;
  return config.task_type == "SEQ_2_SEQ_LM" ? ModelTask::seq2seq_lm : ModelTask::causal_lm;
}

}  // namespace

std::vector<Flag> merge_flags() { return flags_of(kMergeRows); }

int merge(Words words) {
  MergeFlags flags;
  OptionSet set;
  set.add(flags, std::span<const OptionRow<MergeFlags>>(kMergeRows));
  if (set.parse(words).help) {
    print_line(fmt::format(
        "{}\n\nAdds a LoRA adapter to the weights of its model and writes an ordinary model.\n\n{}",
        kMergeUsage, set.help()));
    return 0;
  }
  if (!flags.adapter_name_or_path) refuse_merge("gradus merge needs --adapter_name_or_path");
  if (!flags.output_dir) refuse_merge("gradus merge needs --output_dir");
  const fs::path adapter = *flags.adapter_name_or_path;
  const auto config = LoraConfig::from_pretrained(adapter);
  const auto base =
      flags.model_name_or_path ? flags.model_name_or_path : config.base_model_name_or_path;
  if (!base || base->empty())
    refuse_merge("gradus merge needs --model_name_or_path: adapter_config.json names no model");
  const auto model =
      PeftModel::from_pretrained(model_from_pretrained(task_of_adapter(config), *base), adapter);
  model->merge_and_unload()->save_pretrained(*flags.output_dir);
  for (const fs::path& folder : {adapter, fs::path(*base)})
    if (fs::exists(folder / "tokenizer.json")) {
      Tokenizer::from_pretrained(folder)->save_pretrained(*flags.output_dir);
      break;
    }
  print_line(fmt::format("{} holds the merged model", *flags.output_dir));
  return 0;
}

}  // namespace gradus::cli
