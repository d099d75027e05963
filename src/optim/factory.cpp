#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/optim/adafactor.h>
#include <gradus/optim/adagrad.h>
#include <gradus/optim/adalomo.h>
#include <gradus/optim/adamw.h>
#include <gradus/optim/ademamix.h>
#include <gradus/optim/anyprecision_adamw.h>
#include <gradus/optim/bnb_adamw.h>
#include <gradus/optim/bnb_rmsprop.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/galore_adafactor.h>
#include <gradus/optim/galore_adamw_8bit.h>
#include <gradus/optim/grokadamw.h>
#include <gradus/optim/lion.h>
#include <gradus/optim/lomo.h>
#include <gradus/optim/low_bit_adamw.h>
#include <gradus/optim/low_rank_adamw.h>
#include <gradus/optim/muon.h>
#include <gradus/optim/param_groups.h>
#include <gradus/optim/rmsprop.h>
#include <gradus/optim/schedule_free.h>
#include <gradus/optim/sgd.h>
#include <gradus/optim/stable_adamw.h>

#include "core/registry.h"

namespace gradus {
namespace {

const std::vector<OptimSetting>& ademamix_settings() {
  static const std::vector<OptimSetting> settings = {
      {"beta1", "betas"}, {"beta2", "betas"}, {"beta3", "betas"}, "alpha", "eps",
      "t_alpha",          "t_beta3"};
  return settings;
}

// The rows of GaLore and APOLLO, whose groups follow from optim_target_modules.
OptimizerEntry low_rank_row(const char* name, OptimizerMaker make,
                            std::vector<OptimSetting> settings = {}) {
  settings.insert(settings.end(), {"rank", "update_proj_gap", "scale", "proj_type"});
  return {.name = name,
          .make = std::move(make),
          .optim_args = std::move(settings),
          .groups = ParamGrouping::targets};
}

// The names of transformers in its order, then ours.
std::vector<OptimizerEntry> builtin_optimizers() {
  const std::vector<OptimSetting> averaging = {"weight_lr_power", "r"};
  const std::vector<OptimSetting> warmup = {"warmup_steps"};
  const std::vector<OptimSetting> low_bit = {"block_size", "bf16_stochastic_round"};
  const std::vector<OptimSetting> bnb_rmsprop = {{"alpha", "betas"}, {"momentum", "betas"}, "eps"};
  const std::vector<OptimSetting> apollo = {"proj", "scale_type"};
  return {
      {"adamw_torch", AdamW::from_arguments},
      {"adamw_torch_fused", AdamW::from_arguments},
      {"adamw_torch_xla", AdamW::from_arguments},
      {"adamw_torch_npu_fused", AdamW::from_arguments},
      {"adafactor",
       Adafactor::from_arguments,
       {"scale_parameter", "relative_step", "warmup_init", "clip_threshold", "decay_rate",
        "beta1"}},
      {"adamw_anyprecision",
       AnyPrecisionAdamW::from_arguments,
       {"use_kahan_summation", "momentum_dtype", "variance_dtype", "compensation_buffer_dtype",
        "stochastic_rounding"}},
      {"adamw_torch_4bit", LowBitAdamW::from_arguments, low_bit},
      {"adamw_torch_8bit", LowBitAdamW::from_arguments, low_bit},
      {"ademamix", AdEMAMix::from_arguments, ademamix_settings()},
      {"sgd", SGD::from_arguments, {"momentum", "dampening", "weight_decay", "nesterov"}},
      {"adagrad", Adagrad::from_arguments, {"lr_decay", "weight_decay", "eps"}},
      {"adamw_bnb_8bit", BnbAdamW::from_arguments},
      {"adamw_8bit", BnbAdamW::from_arguments},
      {"ademamix_8bit", AdEMAMix::from_arguments, ademamix_settings()},
      {"lion_8bit", Lion::from_arguments},
      {"lion_32bit", Lion::from_arguments},
      {"paged_adamw_32bit", BnbAdamW::from_arguments},
      {"paged_adamw_8bit", BnbAdamW::from_arguments},
      {"paged_ademamix_32bit", AdEMAMix::from_arguments, ademamix_settings()},
      {"paged_ademamix_8bit", AdEMAMix::from_arguments, ademamix_settings()},
      {"paged_lion_32bit", Lion::from_arguments},
      {"paged_lion_8bit", Lion::from_arguments},
      {"rmsprop",
       RMSprop::from_arguments,
       {"momentum", "alpha", "eps", "weight_decay", "centered"}},
      {"rmsprop_bnb", BnbRMSprop::from_arguments, bnb_rmsprop},
      {"rmsprop_bnb_8bit", BnbRMSprop::from_arguments, bnb_rmsprop},
      {"rmsprop_bnb_32bit", BnbRMSprop::from_arguments, bnb_rmsprop},
      low_rank_row("galore_adamw", LowRankAdamW::from_arguments),
      low_rank_row("galore_adamw_8bit", GaLoreAdamW8bit::from_arguments),
      low_rank_row("galore_adafactor", GaLoreAdafactor::from_arguments),
      low_rank_row("galore_adamw_layerwise", LowRankAdamW::from_arguments),
      low_rank_row("galore_adamw_8bit_layerwise", GaLoreAdamW8bit::from_arguments),
      low_rank_row("galore_adafactor_layerwise", GaLoreAdafactor::from_arguments),
      {.name = "lomo", .make = Lomo::from_arguments, .groups = ParamGrouping::one},
      {.name = "adalomo", .make = AdaLomo::from_arguments, .groups = ParamGrouping::one},
      {"grokadamw",
       GrokAdamW::from_arguments,
       {"alpha_init", "lamb", "gamma", "grokking_signal_decay_rate", "gradient_clipping"}},
      {"schedule_free_radam", ScheduleFree::from_arguments, averaging},
      {"schedule_free_adamw", ScheduleFree::from_arguments, averaging, warmup},
      {"schedule_free_sgd", ScheduleFree::from_arguments, averaging, warmup},
      low_rank_row("apollo_adamw", LowRankAdamW::from_arguments, apollo),
      low_rank_row("apollo_adamw_layerwise", LowRankAdamW::from_arguments, apollo),
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
  return std::move(*entry);
}

}  // namespace

void register_optimizer(OptimizerEntry entry) { optimizers().add(std::move(entry)); }

std::vector<std::string> optimizer_names() { return optimizers().names(); }
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

std::vector<ParamGroupInit> optimizer_groups(const std::string& name,
                                             const torch::nn::Module& module, double weight_decay) {
  return checked_entry(name).groups == ParamGrouping::decay ? decay_groups(module, weight_decay)
                                                            : all_in_one_group(module);
}

bool optimizer_takes_targets(const std::string& name) {
  return optimizers().find(name).value_or(OptimizerEntry{}).groups == ParamGrouping::targets;
}

std::shared_ptr<Optimizer> make_optimizer(const std::string& name,
                                          std::vector<ParamGroupInit> groups,
                                          const OptimizerArguments& args) {
  const auto entry = checked_entry(name);
  return entry.make(std::move(groups), args, OptimArgs(name, args.optim_args, entry.optim_args));
}

}  // namespace gradus
