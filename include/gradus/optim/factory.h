#pragma once

#include <gradus/optim/optim_args.h>
#include <gradus/optim/optimizer.h>
#include <gradus/optim/target_modules.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gradus {

/// The training arguments that reach an optimizer, under transformers' names.
struct OptimizerArguments {
  /// As in `TrainingArguments`.
  double learning_rate = 5e-5;
  double weight_decay = 0.0;  ///< for groups that set none
  /// As in `TrainingArguments`.
  double adam_beta1 = 0.9;
  /// As in `TrainingArguments`.
  double adam_beta2 = 0.999;
  /// As in `TrainingArguments`.
  double adam_epsilon = 1e-8;
  double warmup_steps = 0.0;    ///< used by schedule-free optimizers
  std::string optim_args = "";  ///< "momentum=0.9,nesterov=true"
  /// `optim_target_modules`, for GaLore and APOLLO.
  std::optional<TargetModules> target_modules = std::nullopt;
};

/// Makes an optimizer for these parameter groups. `extra` holds the settings of `--optim_args`.
using OptimizerMaker = std::function<std::shared_ptr<Optimizer>(
    std::vector<ParamGroupInit> groups, const OptimizerArguments& args, const OptimArgs& extra)>;

/// The groups that a trainer gives an optimizer: `decay_groups`, `all_in_one_group`, or the latter
/// to be split by `optim_target_modules`.
enum class ParamGrouping { decay, one, targets };

/// One row of the table of optimizers: all that the library needs to know about one.
struct OptimizerEntry {
  /// What `--optim` calls it, and what `Optimizer::name` returns.
  std::string name;
  OptimizerMaker make = nullptr;  ///< makes it
  /// The settings that `--optim_args` may give, each with the group key that holds it. Where they
  /// are changed on resume, the new values replace those of the checkpoint.
  std::vector<OptimSetting> optim_args = {};
  /// The same for training options, beyond those that every optimizer keeps under torch's keys:
  /// learning_rate (initial_lr), weight_decay, adam_beta1 and adam_beta2 (betas), adam_epsilon
  /// (eps).
  std::vector<OptimSetting> options = {};
  /// In transformers, LOMO, GaLore and APOLLO know no groups with and without weight decay.
  ParamGrouping groups = ParamGrouping::decay;
};

/// Adds an optimizer. From then on `--optim`, its help, its error messages, `gradus options`,
/// `make_optimizer` and the check of changed options on resume know it.
///
///     gradus::register_optimizer({.name = "sign_sgd", .make = make_sign_sgd});
///
/// Call it before the first Trainer is made, from main() or while static objects are set up.
/// Thread-safe. Throws `Error` G-REG-1 for a name that is taken, G-REG-2 for an empty name or no
/// `make`.
void register_optimizer(OptimizerEntry entry);

/// Makes the optimizer that `--optim` calls `name`, with the settings `Trainer` would give it.
/// Throws `Error` G-OPTIM-6 for an unknown name, with the nearest; G-OPTIM-7 for `optim_args` that
/// do not parse or are not known; G-OPTIM-10 where `target_modules` are needed and none are found.
std::shared_ptr<Optimizer> make_optimizer(const std::string& name,
                                          std::vector<ParamGroupInit> groups,
                                          const OptimizerArguments& args = {});

/// The names `make_optimizer` takes, in the order of the table.
std::vector<std::string> optimizer_names();
/// The groups of a model's parameters that the optimizer of this name is to be made from. Throws
/// `Error` G-OPTIM-6 for an unknown name.
std::vector<ParamGroupInit> optimizer_groups(const std::string& name,
                                             const torch::nn::Module& module, double weight_decay);
/// Whether the optimizer of this name is made with `target_modules`; false for an unknown name.
bool optimizer_takes_targets(const std::string& name);
/// Throws what `make_optimizer` would for `name`, without parameters: for checks before work
/// begins.
void check_optimizer_name(const std::string& name);

/// The keys of a parameter group that the training option `option` sets in the optimizer `name`:
/// {"betas"} for adam_beta1; for optim_args the keys of all its settings. Empty for an option that
/// sets none. An unknown optimizer is taken to have no settings of its own.
std::vector<std::string> group_keys_of_option(const std::string& name, const std::string& option);

}  // namespace gradus
