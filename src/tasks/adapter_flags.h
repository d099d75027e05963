#pragma once

#include <gradus/config/option_set.h>
#include <gradus/models/lora_config.h>

#include <optional>
#include <string>
#include <vector>

namespace gradus::tasks {

/// The flags that put a LoRA adapter on the model, as trl's scripts have them.
struct AdapterFlags {
  bool use_peft = false;
  int64_t lora_r = 16;
  int64_t lora_alpha = 32;
  double lora_dropout = 0.05;
  std::optional<std::vector<std::string>> lora_target_modules = std::nullopt;
  std::optional<std::vector<std::string>> lora_modules_to_save = std::nullopt;
  std::optional<std::string> lora_task_type = std::nullopt;
  bool use_rslora = false;
  bool use_dora = false;
};
void add_options(OptionSet& options, AdapterFlags& flags);

/// The adapter that the flags ask for; unset without --use_peft. `task_type` is what it is for
/// when --lora_task_type does not say it.
std::optional<LoraConfig> lora_config(const AdapterFlags& flags,
                                      const std::optional<std::string>& task_type);

}  // namespace gradus::tasks
