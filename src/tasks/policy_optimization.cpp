// trl's grpo.py and rloo.py: a language model learns from rewards for its completions.
#include <gradus/core/error.h>
#include <gradus/trainers/grpo.h>
#include <gradus/trainers/rloo.h>

#include "tasks/registry.h"
#include "tasks/trl_task.h"

namespace gradus {
namespace tasks {
namespace {

/// The flags of trl's scripts for rewards, and gradus' own.
struct RewardFlags {
  std::optional<std::string> reward_model_name_or_path = std::nullopt;
  std::optional<std::vector<std::string>> reward_funcs = std::nullopt;
  std::optional<std::string> reward_command = std::nullopt;
  double reward_timeout = 60;
};
constexpr OptionRow<RewardFlags> kRewardFlagRows[] = {
    {&RewardFlags::reward_model_name_or_path, "reward_model_name_or_path", Group::task, any_value(),
     "Folder of a sequence classification model with one label, whose logit is a reward."},
    {&RewardFlags::reward_funcs, "reward_funcs", Group::task, any_value(),
     "Rewards of the library, as NAME or NAME:TEXT: exact_match:COLUMN, regex:EXPRESSION, "
     "length:TOKENS, think_format_reward, get_soft_overlong_punishment, "
     "get_repetition_penalty_reward."},
    {&RewardFlags::reward_command, "reward_command", Group::task, any_value(),
     "A process of yours that gives rewards: it reads and writes lines of JSON.", Origin::gradus},
    {&RewardFlags::reward_timeout, "reward_timeout", Group::task, above(0),
     "Seconds that --reward_command may take for one answer.", Origin::gradus},
};

/// GRPO or RLOO: both have the same flags.
template <class TrainerClass, class Options>
class PolicyOptimization : public TrlTask {
 public:
  PolicyOptimization(std::string name, std::string trainer)
      : TrlTask(ModelTask::causal_lm), name_(std::move(name)), trainer_(std::move(trainer)) {}

  std::string name() const override { return name_; }
  std::string trainer() const override { return trainer_; }

  void add_options(OptionSet& options) override {
    TrlTask::add_options(options);
    options.add(flags_, std::span<const OptionRow<RewardFlags>>(kRewardFlagRows));
  }

  void check(const TrainingArguments& args) const override {
    TrlTask::check(args);
    if (!flags_.reward_model_name_or_path && !flags_.reward_funcs && !flags_.reward_command)
      throw Error("G-TRL-1", ErrorKind::usage, "the task " + name_ + " has no reward",
                  "Set --reward_funcs, --reward_model_name_or_path or --reward_command.");
    for (const auto& text : functions()) find_reward(text);
  }

 protected:
  /// The model first, then functions, then the process: the order of --reward_weights.
  std::unique_ptr<Trainer> make(TrainerOptions options,
                                std::optional<LoraConfig> adapter) override {
    auto given =
        with_arguments<Options>(options, arguments().template as<typename Options::Arguments>());
    auto& rewards = given.reward_funcs;
    if (const auto& folder = flags_.reward_model_name_or_path) {
      const auto path = std::filesystem::path(*folder).lexically_normal();
      rewards.emplace_back(
          (path.has_filename() ? path : path.parent_path()).filename().string(),
          std::shared_ptr<Model>(AutoModelForSequenceClassification::from_pretrained(
              *folder, {.config = {{"num_labels", 1}}})));
      given.reward_processing_classes.push_back(Tokenizer::from_pretrained(*folder));
    }
    for (const auto& text : functions()) rewards.push_back(find_reward(text));
    if (flags_.reward_command)
      rewards.push_back(command_reward(
          "reward_command", {.command = *flags_.reward_command, .timeout = flags_.reward_timeout}));
    given.reward_processing_classes.resize(rewards.size());
    given.peft_config = std::move(adapter);
    return std::make_unique<TrainerClass>(std::move(given));
  }

 private:
  std::vector<std::string> functions() const {
    return flags_.reward_funcs.value_or(std::vector<std::string>());
  }

  std::string name_, trainer_;
  RewardFlags flags_;
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_grpo() {
  return std::make_unique<tasks::PolicyOptimization<GRPOTrainer, GRPOTrainerOptions>>(
      "grpo", "GRPOTrainer");
}

std::unique_ptr<Task> make_rloo() {
  return std::make_unique<tasks::PolicyOptimization<RLOOTrainer, RLOOTrainerOptions>>(
      "rloo", "RLOOTrainer");
}

}  // namespace gradus
