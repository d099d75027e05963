#include "tasks/adapter_flags.h"

namespace gradus::tasks {
namespace {

constexpr OptionRow<AdapterFlags> kAdapterRows[] = {
    {&AdapterFlags::use_peft, "use_peft", Group::model, any_value(),
     "Train a LoRA adapter instead of the model."},
    {&AdapterFlags::lora_r, "lora_r", Group::model, at_least(1), "Rank of the adapter."},
    {&AdapterFlags::lora_alpha, "lora_alpha", Group::model, any_value(),
     "The adapter's output is multiplied by lora_alpha / lora_r."},
    {&AdapterFlags::lora_dropout, "lora_dropout", Group::model, within_below(0, 1),
     "Dropout of the adapter's input."},
    {&AdapterFlags::lora_target_modules, "lora_target_modules", Group::model, any_value(),
     "Layers to adapt, by name. A single one is a regular expression, or all-linear; unset: the "
     "usual ones for the model."},
    {&AdapterFlags::lora_modules_to_save, "lora_modules_to_save", Group::model, any_value(),
     "Modules that are trained as a whole."},
    {&AdapterFlags::lora_task_type, "lora_task_type", Group::model, any_value(),
     "What adapter_config.json says the model is for; unset: what the task says (trl's tasks: "
     "CAUSAL_LM)."},
    {&AdapterFlags::use_rslora, "use_rslora", Group::model, any_value(),
     "Multiply by lora_alpha / sqrt(lora_r) instead."},
    {&AdapterFlags::use_dora, "use_dora", Group::model, any_value(),
     "Train length and direction of the weights apart (DoRA)."},
};

}  // namespace

void add_options(OptionSet& options, AdapterFlags& flags) {
  options.add(flags, std::span<const OptionRow<AdapterFlags>>(kAdapterRows));
}

std::optional<LoraConfig> lora_config(const AdapterFlags& flags,
                                      const std::optional<std::string>& task_type) {
  if (!flags.use_peft) return std::nullopt;
  LoraConfig config;
  config.r = flags.lora_r;
  config.lora_alpha = double(flags.lora_alpha);
  config.lora_dropout = flags.lora_dropout;
  if (const auto& names = flags.lora_target_modules; names && !names->empty())
    config.target_modules = names->size() == 1 ? StringOrList(names->front()) : *names;
  if (flags.lora_modules_to_save) config.modules_to_save = *flags.lora_modules_to_save;
  config.task_type = flags.lora_task_type ? flags.lora_task_type : task_type;
  config.use_rslora = flags.use_rslora;
  config.use_dora = flags.use_dora;
  return config;
}

}  // namespace gradus::tasks
