// trl's grpo.py and rloo.py: a language model learns from rewards for its completions.
#include <gradus/core/error.h>
#include <gradus/trainers/grpo.h>
#include <gradus/trainers/rloo.h>

#include "tasks/adapter_flags.h"
#include "tasks/registry.h"
#include "tasks/text_data.h"

namespace gradus {
namespace tasks {
namespace {

/// The flags of trl's scripts beside model and data, and gradus' own for rewards.
struct RewardFlags {
  std::string dataset_train_split = "train";
  std::string dataset_test_split = "test";
  std::optional<std::string> reward_model_name_or_path = std::nullopt;
  std::optional<std::vector<std::string>> reward_funcs = std::nullopt;
  std::optional<std::string> reward_command = std::nullopt;
  double reward_timeout = 60;
};
constexpr OptionRow<RewardFlags> kRewardFlagRows[] = {
    {&RewardFlags::dataset_train_split, "dataset_train_split", Group::data, any_value(),
     "The split of --dataset_name to train on."},
    {&RewardFlags::dataset_test_split, "dataset_test_split", Group::data, any_value(),
     "The split of --dataset_name to evaluate on."},
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
template <class Trainer, class Options, class Config>
class PolicyOptimization : public Task {
 public:
  PolicyOptimization(std::string name, std::string trainer)
      : name_(std::move(name)), trainer_(std::move(trainer)) {
    fresh_.dtype = "float32";  // as trl's scripts load models
  }

  std::string name() const override { return name_; }
  std::string trainer() const override { return trainer_; }

  void add_options(OptionSet& options) override {
    tasks::add_options(options, model_);
    tasks::add_options(options, fresh_);
    tasks::add_options(options, adapter_);
    tasks::add_options(options, data_);
    options.add(rewards_, std::span<const OptionRow<RewardFlags>>(kRewardFlagRows));
  }

  void check(const TrainingArguments& args) const override {
    if (args.do_predict)
      throw Error("G-TASK-3", ErrorKind::usage, "the task " + name_ + " does not predict",
                  "Leave --do_predict out; `gradus generate` writes text with the model.");
    check_data_flags(args, data_, {}, /*splits_train=*/false);
    check_model_flags(model_, {.fresh = &fresh_, .do_train = args.do_train});
    if (!rewards_.reward_model_name_or_path && !rewards_.reward_funcs && !rewards_.reward_command)
      throw Error("G-TRL-1", ErrorKind::usage, "the task " + name_ + " has no reward",
                  "Set --reward_funcs, --reward_model_name_or_path or --reward_command.");
    for (const auto& text : rewards_.reward_funcs.value_or(std::vector<std::string>()))
      find_reward(text);
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    PreparedTask prepared;
    auto& trainer = prepared.trainer;
    trainer.processing_class = load_tokenizer(model_);
    trainer.model = load_model(ModelTask::causal_lm, model_, fresh_, nullptr);
    trainer.train_dataset =
        first_rows(open_split(data_, data_.train_file, rewards_.dataset_train_split),
                   data_.max_train_samples)
            .reference();
    if (args.do_eval)
      trainer.eval_dataset =
          first_rows(open_split(data_, data_.validation_file, rewards_.dataset_test_split),
                     data_.max_eval_samples)
              .reference();
    add_rewards();
    auto adapter = lora_config(adapter_);
    if (adapter) adapter->base_model_name_or_path = model_.model_name_or_path;
    prepared.make_trainer = [this, adapter](TrainerOptions options) {
      Options given;
      given.model = std::move(options.model);
      given.args = arguments().template as<Config>();
      given.train_dataset = std::move(options.train_dataset);
      given.eval_dataset = std::move(options.eval_dataset);
      given.processing_class = std::move(options.processing_class);
      given.callbacks = std::move(options.callbacks);
      given.peft_config = adapter;
      given.reward_funcs = functions_;
      given.reward_processing_classes = tokenizers_;
      return std::make_unique<Trainer>(std::move(given));
    };
    return prepared;
  }

 private:
  /// The model first, then functions, then the process: the order of --reward_weights.
  void add_rewards() {
    functions_.clear();
    tokenizers_.clear();
    if (const auto& folder = rewards_.reward_model_name_or_path) {
      const auto name = std::filesystem::path(*folder).lexically_normal();
      functions_.emplace_back(
          (name.has_filename() ? name : name.parent_path()).filename().string(),
          std::shared_ptr<Model>(AutoModelForSequenceClassification::from_pretrained(
              *folder, {.config = {{"num_labels", 1}}})));
      tokenizers_.push_back(Tokenizer::from_pretrained(*folder));
    }
    for (const auto& text : rewards_.reward_funcs.value_or(std::vector<std::string>()))
      functions_.push_back(find_reward(text));
    if (rewards_.reward_command)
      functions_.push_back(command_reward("reward_command", {.command = *rewards_.reward_command,
                                                             .timeout = rewards_.reward_timeout}));
    tokenizers_.resize(functions_.size());
  }

  std::string name_, trainer_;
  ModelFlags model_;
  FreshModelFlags fresh_;
  AdapterFlags adapter_;
  DataFlags data_;
  RewardFlags rewards_;
  std::vector<Reward> functions_;
  std::vector<std::shared_ptr<Tokenizer>> tokenizers_;
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_grpo() {
  return std::make_unique<tasks::PolicyOptimization<GRPOTrainer, GRPOTrainerOptions, GRPOConfig>>(
      "grpo", "GRPOTrainer");
}

std::unique_ptr<Task> make_rloo() {
  return std::make_unique<tasks::PolicyOptimization<RLOOTrainer, RLOOTrainerOptions, RLOOConfig>>(
      "rloo", "RLOOTrainer");
}

}  // namespace gradus
