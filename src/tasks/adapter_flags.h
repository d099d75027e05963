#pragma once

#include <gradus/config/option_set.h>
#include <gradus/models/lora_config.h>

#include <optional>
#include <string>
#include <vector>

namespace gradus::tasks {

/// The flags of trl's scripts that put a LoRA adapter on the model.
struct AdapterFlags {
  bool use_peft = false;
  int64_t lora_r = 16;
  int64_t lora_alpha = 32;
  double lora_dropout = 0.05;
  std::optional<std::vector<std::string>> lora_target_modules = std::nullopt;
  std::optional<std::vector<std::string>> lora_modules_to_save = std::nullopt;
  std::string lora_task_type = "CAUSAL_LM";
  bool use_rslora = false;
  bool use_dora = false;
};
void add_options(OptionSet& options, AdapterFlags& flags);

/// The adapter that the flags ask for; unset without --use_peft.
std::optional<LoraConfig> lora_config(const AdapterFlags& flags);

}  // namespace gradus::tasks
