// The tables of optimizers and schedules, and what users add to them.
#include <gradus/optim/factory.h>
#include <gradus/optim/schedule_kwargs.h>
#include <gradus/optim/schedulers.h>
#include <gradus/optim/sgd.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "../error_of.h"

namespace gradus {
namespace {

std::vector<ParamGroupInit> some_groups() {
  return {
      ParamGroupInit{.params = {torch::zeros({2, 2}).requires_grad_()}, .names = {"matrix.weight"}},
      ParamGroupInit{.params = {torch::zeros({2}).requires_grad_()}, .names = {"bias"}}};
}

std::set<std::string> keys_of_groups(const Optimizer& optimizer) {
  std::set<std::string> keys = {"initial_lr"};  // set by the first schedule
  const auto state = optimizer.state_dict();
  for (const auto& group : state.at("param_groups").items())
    for (const auto& [key, value] : group.entries()) keys.insert(std::get<std::string>(key));
  return keys;
}

TEST(OptimizerTable, RowsSayWhatTheOptimizersAre) {
  for (const auto& name : optimizer_names()) {
    const auto optimizer =
        make_optimizer(name, some_groups(), {.target_modules = TargetModules{{"matrix"}}});
    EXPECT_EQ(optimizer->name(), name);
    const auto keys = keys_of_groups(*optimizer);
    for (const auto& key : group_keys_of_option(name, "optim_args"))
      EXPECT_TRUE(keys.contains(key)) << name << " keeps no " << key;
  }
}

TEST(OptimizerTable, OptionsNameTheGroupKeysTheySet) {
  using Keys = std::vector<std::string>;
  EXPECT_EQ(group_keys_of_option("adamw_torch", "adam_beta1"), Keys{"betas"});
  EXPECT_EQ(group_keys_of_option("adamw_torch", "optim_args"), Keys{});
  EXPECT_EQ(group_keys_of_option("adamw_torch", "seed"), Keys{});
  EXPECT_EQ(group_keys_of_option("ademamix", "optim_args"),
            (Keys{"betas", "betas", "betas", "alpha", "eps", "t_alpha", "t_beta3"}));
  EXPECT_EQ(group_keys_of_option("stable_adamw", "adam_beta2"), (Keys{"betas", "beta2"}));
  EXPECT_EQ(group_keys_of_option("schedule_free_sgd", "warmup_steps"), Keys{"warmup_steps"});
  EXPECT_EQ(group_keys_of_option("an optimizer without a row", "learning_rate"),
            Keys{"initial_lr"});
}

OptimizerEntry own_sgd(const std::string& name) {
  return {.name = name,
          .make = [](std::vector<ParamGroupInit> groups, const OptimizerArguments& args,
                     const OptimArgs& extra) -> std::shared_ptr<Optimizer> {
            class Named : public SGD {
             public:
              Named(std::vector<ParamGroupInit> groups, SGDOptions options, std::string name)
                  : SGD(std::move(groups), options), name_(std::move(name)) {}
              std::string name() const override { return name_; }

             private:
              std::string name_;
            };
            SGDOptions options{.lr = args.learning_rate};
            extra.read("drag", options.momentum);
            return std::make_shared<Named>(std::move(groups), options, extra.optimizer());
          },
          .optim_args = {{"drag", "momentum"}}};
}

TEST(RegisterOptimizer, IsKnownEverywhere) {
  register_optimizer(own_sgd("own_sgd"));
  EXPECT_EQ(optimizer_names().back(), "own_sgd");
  const auto made =
      make_optimizer("own_sgd", some_groups(), {.learning_rate = 0.5, .optim_args = "drag=0.25"});
  EXPECT_EQ(made->default_lr(), 0.5);
  EXPECT_EQ(made->state_dict().at("param_groups").items()[0].at("momentum").as_double(), 0.25);
  EXPECT_EQ(group_keys_of_option("own_sgd", "optim_args"), std::vector<std::string>{"momentum"});
  expect_error([] { make_optimizer("own_sgd", some_groups(), {.optim_args = "dra=1"}); },
               "G-OPTIM-7", {"optim_args of own_sgd: there is no 'dra'; it takes drag"});
  expect_error([] { make_optimizer("own_sdg", some_groups()); }, "G-OPTIM-6",
               {"Did you mean own_sgd"});
}

TEST(RegisterOptimizer, RefusesASecondOfTheSameName) {
  register_optimizer(own_sgd("own_twice"));
  expect_error([] { register_optimizer(own_sgd("own_twice")); }, "G-REG-1",
               {"register_optimizer: 'own_twice' is there already"});
  expect_error([] { register_optimizer(own_sgd("sgd")); }, "G-REG-1", {"'sgd' is there already"});
  expect_error([] { register_optimizer(own_sgd("")); }, "G-REG-2", {"an empty name"});
  expect_error([] { register_optimizer({.name = "own_nothing"}); }, "G-REG-2",
               {"'own_nothing' comes without a function"});
}

TEST(RegisterOptimizer, AnEntryMustListWhatItsFunctionReads) {
  expect_error([] { OptimArgs("own", "", {"drag"}).text("drog"); }, "G-OPTIM-9",
               {"own reads 'drog' of optim_args", "OptimizerEntry::optim_args"});
}

TEST(RegisterScheduler, IsMadeByItsName) {
  register_scheduler({"own_halving", [](Optimizer& optimizer, const SchedulerArguments& args) {
                        const auto every = ScheduleKwargs(args.name, args.kwargs, {"every"})
                                               .integer("every")
                                               .value_or(args.training_steps());
                        return std::make_unique<LambdaLR>(optimizer, [every](int64_t step) {
                          return std::pow(0.5, double(step / every));
                        });
                      }});
  SGD optimizer(some_groups(), {.lr = 0.8});
  auto scheduler = get_scheduler("own_halving", optimizer, 0, 10, {{"every", 2}});
  scheduler->step(), scheduler->step(), scheduler->step();
  EXPECT_EQ(scheduler->last_lr().front(), 0.4);
  EXPECT_EQ(scheduler_names().back(), "own_halving");
  EXPECT_FALSE(is_metric_driven_scheduler("own_halving"));
  EXPECT_TRUE(is_metric_driven_scheduler("greedy"));
  expect_error([&] { get_scheduler("own_halving", optimizer); }, "G-SCHED-2",
               {"own_halving requires `num_training_steps`"});
  const auto nothing = [](Optimizer&, const SchedulerArguments&) {
    return std::unique_ptr<LRScheduler>();
  };
  expect_error([&] { register_scheduler({"linear", nothing}); }, "G-REG-1",
               {"register_scheduler: 'linear' is there already"});
}

}  // namespace
}  // namespace gradus
