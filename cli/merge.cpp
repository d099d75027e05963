#include <fmt/format.h>
#include <gradus/config/option_set.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
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

/// The head of a class of transformers, by the end of its name.
std::optional<ModelTask> head_of_class(const std::string& class_name) {
  static constexpr std::pair<std::string_view, ModelTask> kHeads[] = {
      {"ForCausalLM", ModelTask::causal_lm},
      {"LMHeadModel", ModelTask::causal_lm},
      {"ForMaskedLM", ModelTask::masked_lm},
      {"ForSequenceClassification", ModelTask::sequence_classification},
      {"ForTokenClassification", ModelTask::token_classification},
      {"ForQuestionAnswering", ModelTask::question_answering},
      {"ForConditionalGeneration", ModelTask::seq2seq_lm},
      {"EncoderModel", ModelTask::text_encoding},
      {"Model", ModelTask::base}};
  for (const auto& [end, head] : kHeads)
    if (class_name.ends_with(end)) return head;
  return std::nullopt;
}

/// The head that an adapter's task_type stands for.
std::optional<ModelTask> head_of_task_type(const std::string& type) {
  static constexpr std::pair<std::string_view, ModelTask> kHeads[] = {
      {"CAUSAL_LM", ModelTask::causal_lm},
      {"SEQ_CLS", ModelTask::sequence_classification},
      {"TOKEN_CLS", ModelTask::token_classification},
      {"QUESTION_ANS", ModelTask::question_answering},
      {"SEQ_2_SEQ_LM", ModelTask::seq2seq_lm},
      {"FEATURE_EXTRACTION", ModelTask::base}};
  for (const auto& [name, head] : kHeads)
    if (type == name) return head;
  return std::nullopt;
}

/// The head of the model that an adapter was trained on. Where task_type is not set, peft writes
/// the model's class to auto_mapping. The base model's own class comes last.
ModelTask head_of_adapter(const fs::path& adapter, const std::optional<std::string>& task_type,
                          const fs::path& base) {
  if (task_type)
    if (const auto head = head_of_task_type(*task_type)) return *head;
  const auto text_at = [](const fs::path& file, const char* pointer) {
    std::error_code ignored;
    if (!fs::exists(file, ignored)) return std::string();
    const auto values = read_json(file);
    const nlohmann::json::json_pointer place(pointer);
    return values.contains(place) && values[place].is_string() ? values[place].get<std::string>()
                                                               : std::string();
  };
  for (const auto& name :
       {text_at(adapter / "adapter_config.json", "/auto_mapping/base_model_class"),
        text_at(base / "config.json", "/architectures/0")})
    if (const auto head = head_of_class(name)) return *head;
  return ModelTask::causal_lm;
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
  const auto adapter = expand_user(*flags.adapter_name_or_path);
  const auto config = LoraConfig::from_pretrained(adapter);
  const auto base =
      flags.model_name_or_path ? flags.model_name_or_path : config.base_model_name_or_path;
  if (!base || base->empty())
    refuse_merge("gradus merge needs --model_name_or_path: adapter_config.json names no model");
  const auto folder = expand_user(*base);
  std::error_code not_there;
  if (fs::equivalent(folder, expand_user(*flags.output_dir), not_there))
    refuse_merge(fmt::format("--output_dir {} is the folder of the base model, which would be lost",
                             *flags.output_dir));
  const auto head = head_of_adapter(adapter, config.task_type, folder);
  const auto model = PeftModel::from_pretrained(base_for_adapter(head, folder, adapter), adapter);
  model->merge_and_unload()->save_pretrained(*flags.output_dir);
  for (const auto& place : {adapter, folder})
    if (fs::exists(place / "tokenizer.json")) {
      Tokenizer::from_pretrained(place)->save_pretrained(*flags.output_dir);
      break;
    }
  print_line(fmt::format("{} holds the merged model", *flags.output_dir));
  return 0;
}

}  // namespace gradus::cli
