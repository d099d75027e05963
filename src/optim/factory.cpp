#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/optim/adafactor.h>
#include <gradus/optim/adagrad.h>
#include <gradus/optim/adamw.h>
#include <gradus/optim/ademamix.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/lion.h>
#include <gradus/optim/muon.h>
#include <gradus/optim/rmsprop.h>
#include <gradus/optim/schedule_free.h>
#include <gradus/optim/sgd.h>
#include <gradus/optim/stable_adamw.h>

#include "core/registry.h"

namespace gradus {
namespace {

// The names of transformers in its order, then ours. A row without a function is not there yet.
std::vector<OptimizerEntry> builtin_optimizers() {
  const std::vector<OptimSetting> averaging = {"weight_lr_power", "r"};
  const std::vector<OptimSetting> warmup = {"warmup_steps"};
  return {
      {"adamw_torch", AdamW::from_arguments},
      {"adamw_torch_fused", AdamW::from_arguments},
      {"adamw_torch_xla"},
      {"adamw_torch_npu_fused"},
      {"adafactor",
       Adafactor::from_arguments,
       {"scale_parameter", "relative_step", "warmup_init", "clip_threshold", "decay_rate",
        "beta1"}},
      {"adamw_anyprecision"},
      {"adamw_torch_4bit"},
      {"adamw_torch_8bit"},
      {"ademamix",
       AdEMAMix::from_arguments,
       {{"beta1", "betas"},
        {"beta2", "betas"},
        {"beta3", "betas"},
        "alpha",
        "eps",
        "t_alpha",
        "t_beta3"}},
      {"sgd", SGD::from_arguments, {"momentum", "dampening", "weight_decay", "nesterov"}},
      {"adagrad", Adagrad::from_arguments, {"lr_decay", "weight_decay", "eps"}},
      {"adamw_bnb_8bit"},
      {"adamw_8bit"},
      {"ademamix_8bit"},
      {"lion_8bit"},
      {"lion_32bit", Lion::from_arguments},
      {"paged_adamw_32bit"},
      {"paged_adamw_8bit"},
      {"paged_ademamix_32bit"},
      {"paged_ademamix_8bit"},
      {"paged_lion_32bit"},
      {"paged_lion_8bit"},
      {"rmsprop",
       RMSprop::from_arguments,
       {"momentum", "alpha", "eps", "weight_decay", "centered"}},
      {"rmsprop_bnb"},
      {"rmsprop_bnb_8bit"},
      {"rmsprop_bnb_32bit"},
      {"galore_adamw"},
      {"galore_adamw_8bit"},
      {"galore_adafactor"},
      {"galore_adamw_layerwise"},
      {"galore_adamw_8bit_layerwise"},
      {"galore_adafactor_layerwise"},
      {"lomo"},
      {"adalomo"},
      {"grokadamw"},
      {"schedule_free_radam", ScheduleFree::from_arguments, averaging},
      {"schedule_free_adamw", ScheduleFree::from_arguments, averaging, warmup},
      {"schedule_free_sgd", ScheduleFree::from_arguments, averaging, warmup},
      {"apollo_adamw"},
      {"apollo_adamw_layerwise"},
      {"stable_adamw",
       StableAdamW::from_arguments,
       {"decouple_lr", "max_lr", "kahan_sum"},
       {{"adam_beta1", "beta1"}, {"adam_beta2", "beta2"}}},
      {"muon",
       Muon::from_arguments,
       {"momentum", "nesterov", "ns_steps", "eps", {"adamw_lr", "initial_lr"}, "adjust_lr_fn"}},
  };
}

Registry<OptimizerEntry>& optimizers() {
  static Registry<OptimizerEntry> table("register_optimizer", builtin_optimizers());
  return table;
}

// What every optimizer keeps under the keys of torch, if it has the setting.
const std::vector<OptimSetting>& common_settings() {
  static const std::vector<OptimSetting> settings = {{"learning_rate", "initial_lr"},
                                                     "weight_decay",
                                                     {"adam_beta1", "betas"},
                                                     {"adam_beta2", "betas"},
                                                     {"adam_epsilon", "eps"}};
  return settings;
}

OptimizerEntry checked_entry(const std::string& name) {
  auto entry = optimizers().find(name);
  const auto names = optimizers().names();
  if (!entry)
    throw Error("G-OPTIM-6", ErrorKind::usage,
                "unknown optimizer '" + name + "'; expected " + join_or(names),
                did_you_mean(name, names));
  if (!entry->make)
    throw Error("G-OPTIM-5", ErrorKind::usage,
                "the optimizer '" + name + "' of transformers is not available in gradus yet",
                "Use " + join_or(names) + ".");
  return std::move(*entry);
}

}  // namespace

void register_optimizer(OptimizerEntry entry) { optimizers().add(std::move(entry)); }

std::vector<std::string> optimizer_names() { return optimizers().names(); }
std::vector<std::string> missing_optimizer_names() { return optimizers().missing_names(); }
std::vector<std::string> optimizer_choices() { return optimizers().all_names(); }
void check_optimizer_name(const std::string& name) { checked_entry(name); }

std::vector<std::string> group_keys_of_option(const std::string& name, const std::string& option) {
  const auto entry = optimizers().find(name).value_or(OptimizerEntry{});
  std::vector<std::string> keys;
  if (option == "optim_args") {
    for (const auto& setting : entry.optim_args) keys.push_back(setting.group_key);
    return keys;
  }
  for (const auto* settings : {&common_settings(), &entry.options})
    for (const auto& setting : *settings)
      if (setting.name == option) keys.push_back(setting.group_key);
  return keys;
}

std::shared_ptr<Optimizer> make_optimizer(const std::string& name,
                                          std::vector<ParamGroupInit> groups,
                                          const OptimizerArguments& args) {
  const auto entry = checked_entry(name);
  return entry.make(std::move(groups), args, OptimArgs(name, args.optim_args, entry.optim_args));
}

}  // namespace gradus
