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

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

namespace gradus {
namespace {

using Groups = std::vector<ParamGroupInit>;

/// `optim_args` of one optimizer. Reading a key marks it; `finish` refuses those nobody read.
class OptimArgs {
 public:
  OptimArgs(std::string optimizer, const std::string& text) : optimizer_(std::move(optimizer)) {
    std::string part;
    const auto take = [&] {
      const auto equals = part.find('=');
      if (equals == std::string::npos || equals == 0 ||
          part.find('=', equals + 1) != std::string::npos)
        refuse("expected key=value pairs with commas between, received '" + part + "'",
               "For example --optim_args momentum=0.9,nesterov=true.");
      values_[part.substr(0, equals)] = part.substr(equals + 1);
      part.clear();
    };
    for (char c : text) {
      if (c == ' ') continue;
      if (c != ',')
        part += c;
      else
        take();
    }
    if (!part.empty() || !values_.empty()) take();
  }

  std::optional<std::string> text(const std::string& key) {
    known_.push_back(key);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

  void read(const std::string& key, double& value) {
    const auto given = text(key);
    if (!given) return;
    const char* end = given->data() + given->size();
    const auto [stop, error] = std::from_chars(given->data(), end, value);
    if (error != std::errc() || stop != end)
      refuse("'" + key + "' must be a number, received '" + *given + "'");
  }

  void read(const std::string& key, int64_t& value) {
    double number = double(value);
    read(key, number);
    if (number != std::floor(number))
      refuse("'" + key + "' must be a whole number, received '" + values_[key] + "'");
    value = int64_t(number);
  }

  void read(const std::string& key, bool& value) {
    auto given = text(key);
    if (!given) return;
    std::transform(given->begin(), given->end(), given->begin(),
                   [](unsigned char c) { return char(std::tolower(c)); });
    const bool yes = *given == "true" || *given == "1" || *given == "yes";
    if (!yes && *given != "false" && *given != "0" && *given != "no")
      refuse("'" + key + "' must be true or false, received '" + values_[key] + "'");
    value = yes;
  }

  template <class T>
  void read(const std::string& key, std::optional<T>& value) {
    if (values_.count(key) == 0 || values_[key] == "None") return void(known_.push_back(key));
    T inner{};
    read(key, inner);
    value = inner;
  }

  void finish() const {
    for (const auto& [key, value] : values_) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      std::string listed;
      for (const auto& name : known_) listed += (listed.empty() ? "" : ", ") + name;
      refuse(
          "there is no '" + key + "'; " + (known_.empty() ? "it takes none" : "it takes " + listed),
          did_you_mean(key, known_));
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& advice = {}) const {
    throw Error("G-OPTIM-7", ErrorKind::usage, "optim_args of " + optimizer_ + ": " + what, advice);
  }

  std::string optimizer_;
  std::map<std::string, std::string> values_;
  std::vector<std::string> known_;
};

using Maker =
    std::function<std::shared_ptr<Optimizer>(Groups, const OptimizerArguments&, OptimArgs&)>;

std::array<double, 2> betas(const OptimizerArguments& args) {
  return {args.adam_beta1, args.adam_beta2};
}

Maker adamw(bool fused) {
  return [fused](Groups groups, const OptimizerArguments& args, OptimArgs&) {
    return std::make_shared<AdamW>(std::move(groups),
                                   AdamWOptions{.lr = args.learning_rate,
                                                .betas = betas(args),
                                                .eps = args.adam_epsilon,
                                                .weight_decay = args.weight_decay,
                                                .fused = fused});
  };
}

std::shared_ptr<Optimizer> make_sgd(Groups groups, const OptimizerArguments& args,
                                    OptimArgs& extra) {
  SGDOptions o{.lr = args.learning_rate, .weight_decay = args.weight_decay};
  extra.read("momentum", o.momentum);
  extra.read("dampening", o.dampening);
  extra.read("weight_decay", o.weight_decay);
  extra.read("nesterov", o.nesterov);
  return std::make_shared<SGD>(std::move(groups), o);
}

std::shared_ptr<Optimizer> make_adagrad(Groups groups, const OptimizerArguments& args,
                                        OptimArgs& extra) {
  AdagradOptions o{.lr = args.learning_rate, .weight_decay = args.weight_decay};
  extra.read("lr_decay", o.lr_decay);
  extra.read("weight_decay", o.weight_decay);
  extra.read("eps", o.eps);
  return std::make_shared<Adagrad>(std::move(groups), o);
}

std::shared_ptr<Optimizer> make_rmsprop(Groups groups, const OptimizerArguments& args,
                                        OptimArgs& extra) {
  RMSpropOptions o{.lr = args.learning_rate, .weight_decay = args.weight_decay};
  extra.read("momentum", o.momentum);
  extra.read("alpha", o.alpha);
  extra.read("eps", o.eps);
  extra.read("weight_decay", o.weight_decay);
  extra.read("centered", o.centered);
  return std::make_shared<RMSprop>(std::move(groups), o);
}

// HF fixes scale_parameter and relative_step to false; optim_args may turn them on here.
std::shared_ptr<Optimizer> make_adafactor(Groups groups, const OptimizerArguments& args,
                                          OptimArgs& extra) {
  AdafactorOptions o{
      .weight_decay = args.weight_decay, .scale_parameter = false, .relative_step = false};
  extra.read("scale_parameter", o.scale_parameter);
  extra.read("relative_step", o.relative_step);
  extra.read("warmup_init", o.warmup_init);
  extra.read("clip_threshold", o.clip_threshold);
  extra.read("decay_rate", o.decay_rate);
  extra.read("beta1", o.beta1);
  if (!o.relative_step) o.lr = args.learning_rate;
  return std::make_shared<Adafactor>(std::move(groups), o);
}

std::shared_ptr<Optimizer> make_lion(Groups groups, const OptimizerArguments& args, OptimArgs&) {
  return std::make_shared<Lion>(std::move(groups), LionOptions{.lr = args.learning_rate,
                                                               .betas = betas(args),
                                                               .weight_decay = args.weight_decay});
}

std::shared_ptr<Optimizer> make_ademamix(Groups groups, const OptimizerArguments& args,
                                         OptimArgs& extra) {
  AdEMAMixOptions o{.lr = args.learning_rate,
                    .betas = {args.adam_beta1, args.adam_beta2, 0.9999},
                    .eps = args.adam_epsilon,
                    .weight_decay = args.weight_decay};
  extra.read("beta1", o.betas[0]);
  extra.read("beta2", o.betas[1]);
  extra.read("beta3", o.betas[2]);
  extra.read("alpha", o.alpha);
  extra.read("eps", o.eps);
  extra.read("t_alpha", o.t_alpha);
  extra.read("t_beta3", o.t_beta3);
  return std::make_shared<AdEMAMix>(std::move(groups), o);
}

std::shared_ptr<Optimizer> make_stable_adamw(Groups groups, const OptimizerArguments& args,
                                             OptimArgs& extra) {
  StableAdamWOptions o{.lr = args.learning_rate,
                       .betas = betas(args),
                       .eps = args.adam_epsilon,
                       .weight_decay = args.weight_decay};
  extra.read("decouple_lr", o.decouple_lr);
  extra.read("max_lr", o.max_lr);
  extra.read("kahan_sum", o.kahan_sum);
  return std::make_shared<StableAdamW>(std::move(groups), o);
}

Maker schedule_free(ScheduleFreeKind kind) {
  return [kind](Groups groups, const OptimizerArguments& args, OptimArgs& extra) {
    ScheduleFreeOptions o{.lr = args.learning_rate,
                          .betas = betas(args),
                          .eps = args.adam_epsilon,
                          .weight_decay = args.weight_decay};
    if (kind != ScheduleFreeKind::radam) o.warmup_steps = args.warmup_steps;
    extra.read("weight_lr_power", o.weight_lr_power);
    extra.read("r", o.r);
    return std::make_shared<ScheduleFree>(kind, std::move(groups), o);
  };
}

std::shared_ptr<Optimizer> make_muon(Groups groups, const OptimizerArguments& args,
                                     OptimArgs& extra) {
  MuonOptions o{.lr = args.learning_rate,
                .weight_decay = args.weight_decay,
                .adamw_betas = betas(args),
                .adamw_eps = args.adam_epsilon};
  extra.read("momentum", o.momentum);
  extra.read("nesterov", o.nesterov);
  extra.read("ns_steps", o.ns_steps);
  extra.read("eps", o.eps);
  extra.read("adamw_lr", o.adamw_lr);
  if (auto how = extra.text("adjust_lr_fn")) o.adjust_lr_fn = std::move(how);
  return std::make_shared<Muon>(std::move(groups), o);
}

const std::vector<std::pair<std::string, Maker>>& makers() {
  static const std::vector<std::pair<std::string, Maker>> table = {
      {"adamw_torch", adamw(false)},
      {"adamw_torch_fused", adamw(true)},
      {"adafactor", make_adafactor},
      {"ademamix", make_ademamix},
      {"sgd", make_sgd},
      {"adagrad", make_adagrad},
      {"rmsprop", make_rmsprop},
      {"lion_32bit", make_lion},
      {"schedule_free_radam", schedule_free(ScheduleFreeKind::radam)},
      {"schedule_free_adamw", schedule_free(ScheduleFreeKind::adamw)},
      {"schedule_free_sgd", schedule_free(ScheduleFreeKind::sgd)},
      {"stable_adamw", make_stable_adamw},
      {"muon", make_muon},
  };
  return table;
}

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const auto& [name, maker] : makers()) result.push_back(name);
    return result;
  }();
  return names;
}

const std::vector<std::string>& missing_optimizer_names() {
  static const std::vector<std::string> names = {"adamw_torch_xla",
                                                 "adamw_torch_npu_fused",
                                                 "adamw_anyprecision",
                                                 "adamw_torch_4bit",
                                                 "adamw_torch_8bit",
                                                 "adamw_bnb_8bit",
                                                 "adamw_8bit",
                                                 "ademamix_8bit",
                                                 "lion_8bit",
                                                 "paged_adamw_32bit",
                                                 "paged_adamw_8bit",
                                                 "paged_ademamix_32bit",
                                                 "paged_ademamix_8bit",
                                                 "paged_lion_32bit",
                                                 "paged_lion_8bit",
                                                 "rmsprop_bnb",
                                                 "rmsprop_bnb_8bit",
                                                 "rmsprop_bnb_32bit",
                                                 "galore_adamw",
                                                 "galore_adamw_8bit",
                                                 "galore_adafactor",
                                                 "galore_adamw_layerwise",
                                                 "galore_adamw_8bit_layerwise",
                                                 "galore_adafactor_layerwise",
                                                 "lomo",
                                                 "adalomo",
                                                 "grokadamw",
                                                 "apollo_adamw",
                                                 "apollo_adamw_layerwise"};
  return names;
}

void check_optimizer_name(const std::string& name) {
  const auto& names = optimizer_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  const auto& missing = missing_optimizer_names();
  if (std::find(missing.begin(), missing.end(), name) != missing.end())
    throw Error("G-OPTIM-5", ErrorKind::usage,
                "the optimizer '" + name + "' of transformers is not available in gradus yet",
                "Use " + join_or(names) + ".");
  const auto hint = did_you_mean(name, names);
  throw Error("G-OPTIM-6", ErrorKind::usage,
              "unknown optimizer '" + name + "'; expected " + join_or(names), hint);
}

std::shared_ptr<Optimizer> make_optimizer(const std::string& name,
                                          std::vector<ParamGroupInit> groups,
                                          const OptimizerArguments& args) {
  check_optimizer_name(name);
  OptimArgs extra(name, args.optim_args);
  const auto& table = makers();
  const auto row = std::find_if(table.begin(), table.end(),
                                [&](const auto& entry) { return entry.first == name; });
  auto optimizer = row->second(std::move(groups), args, extra);
  extra.finish();
  return optimizer;
}

}  // namespace gradus
