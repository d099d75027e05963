#pragma once

#include <gradus/models/lora_config.h>
#include <gradus/models/pretrained_model.h>

#include <string>
#include <utility>
#include <vector>

namespace gradus {

/// A module of the base model with its name.
using NamedModule = std::pair<std::string, std::shared_ptr<torch::nn::Module>>;

/// The modules of a model by name, without those of adapters, in the model's order.
std::vector<NamedModule> base_modules(PreTrainedModel& base);

/// Fills in what peft derives from the model: default target modules, "all-linear" as names.
void complete_targets(LoraConfig& config, PreTrainedModel& base);

/// The layers that a completed config adapts, in the model's order. Throws `Error` G-PEFT-2 when
/// there are none or one is of a kind that cannot be adapted.
std::vector<NamedModule> adapted_modules(const LoraConfig& config, PreTrainedModel& base);

/// The modules that the config trains as a whole. Throws `Error` G-PEFT-2 for a name that no module
/// has.
std::vector<NamedModule> modules_to_save(const LoraConfig& config, PreTrainedModel& base);

/// Whether a completed config names the tables of tokens: "embed_tokens" or "lm_head" in a list, or
/// an expression that matches one of them. peft saves the tables themselves then.
bool targets_vocabulary(const LoraConfig& config, PreTrainedModel& base);

/// The value for the layer `name`: that of the first pattern that matches, or `otherwise`.
template <class T>
T pattern_value(const std::vector<std::pair<std::string, T>>& patterns, const std::string& name,
                T otherwise);

}  // namespace gradus
