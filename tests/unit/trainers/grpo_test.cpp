// What GRPOTrainer refuses, and what it passes on; its numbers are compared with trl's in
// tests/differential/grpo_test.py.
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/data/collators.h>
#include <gradus/models/auto_model.h>
#include <gradus/text/tokenizer.h>
#include <gradus/trainers/grpo.h>
#include <gradus/trainers/on_policy_distillation.h>
#include <gradus/trainers/rloo.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "../../silent_log.h"
#include "../error_of.h"

namespace gradus {
namespace {

class Grpo : public ::testing::Test {
 protected:
  Grpo()
      : sink_(set_log_sink(std::make_shared<testing::SilentLog>())),
        folder_(std::filesystem::temp_directory_path() / ("grpo_" + std::to_string(::getpid()))) {
    make_directory(folder_);
    write_file_atomically(folder_ / "words.txt", "the cat sees one red bird\n");
    tokenizer_ = Tokenizer::train_bpe({folder_ / "words.txt"}, {.vocab_size = 262});
  }
  ~Grpo() override {
    set_log_sink(sink_);
    std::filesystem::remove_all(folder_);
  }

  GRPOTrainerOptions options(RewardFunction reward) const {
    auto options = plain_options<GRPOTrainerOptions>();
    options.args.num_generations = 2;
    options.reward_funcs = {{"given", std::move(reward)}};
    return options;
  }

  /// Of any trainer that samples completions.
  template <class Options>
  Options plain_options() const {
    torch::manual_seed(3);
    Options options;
    options.model =
        AutoModelForCausalLM::from_config({{"model_type", "gpt2"},
                                           {"vocab_size", tokenizer_->full_vocab_size()},
                                           {"n_embd", 8},
                                           {"n_layer", 1},
                                           {"n_head", 2},
                                           {"n_positions", 24}});
    options.args.output_dir = folder_.string();
    options.args.max_steps = 1;
    options.args.per_device_train_batch_size = 4;
    options.args.save_strategy = "no";
    options.args.disable_tqdm = true;
    options.args.bf16 = false;
    options.args.report_to = {"none"};
    options.args.max_completion_length = 4;
    options.train_dataset = from_examples(
        {{{"prompt", "the cat"}, {"wanted", 1}}, {{"prompt", "one red bird"}, {"wanted", 2}}});
    options.processing_class = tokenizer_;
    return options;
  }

  std::shared_ptr<LogSink> sink_;
  std::filesystem::path folder_;
  std::shared_ptr<Tokenizer> tokenizer_;
};

std::vector<double> ones(const RewardInputs& in) {
  return std::vector<double>(in.completions.size(), 1.0);
}

TEST_F(Grpo, IsNeverRecorded) {
  struct Shown : GRPOTrainer {
    using GRPOTrainer::GRPOTrainer;
    using GRPOTrainer::step_traits;
  };
  const auto zeros = [](const RewardInputs& inputs) {
    return std::vector<double>(inputs.completions.size(), 0.0);
  };
  const Shown trainer(options(zeros));
  EXPECT_EQ(trainer.step_traits().plain_because, "the host reads the metrics of every step");
}

TEST_F(Grpo, RewardsSeeColumnsAndTokensOfEachCompletion) {
  size_t count = 0;
  auto given = options([&](const RewardInputs& in) {
    count = in.completions.size();
    EXPECT_EQ(in.prompts[0], in.prompts[1]);
    EXPECT_EQ(in.column("wanted").size(), count);
    EXPECT_EQ(in.state().global_step, 0);
    for (const auto& ids : in.completion_ids) EXPECT_LE(ids.size(), 4u);
    return ones(in);
  });
  GRPOTrainer(std::move(given)).train();
  EXPECT_EQ(count, 4u);
}

TEST_F(Grpo, RefusesAReferenceThatIsTheModel) {
  auto given = options(ones);
  given.args.beta = 0.1;
  given.ref_model = given.model;
  expect_error([&] { GRPOTrainer trainer(given); }, "G-TRL-1", {"ref_model", "GRPOTrainer"});

  auto rloo = plain_options<RLOOTrainerOptions>();  // its beta is above 0
  rloo.reward_funcs = {{"given", ones}};
  rloo.ref_model = rloo.model;
  expect_error([&] { RLOOTrainer trainer(rloo); }, "G-TRL-1", {"ref_model", "RLOOTrainer"});

  auto distillation = plain_options<OnPolicyDistillationTrainerOptions>();
  distillation.teacher_model = distillation.model;
  expect_error([&] { OnPolicyDistillationTrainer trainer(distillation); }, "G-TRL-1",
               {"the teacher is the model"});
}

TEST_F(Grpo, DividesByALengthThatIsSet) {
  GRPOConfig args;
  args.loss_type = "dr_grpo";
  args.max_completion_length.reset();
  expect_error([&] { (void)args.resolved(); }, "G-TRL-1",
               {"dr_grpo divides by max_completion_length", "Set --max_completion_length"});
}

TEST_F(Grpo, KeepsTheAdaptedEntropyInTrlsFile) {
  auto given = options(ones);
  given.args.use_adaptive_entropy = true;
  given.args.entropy_coef = 0.25;
  given.args.entropy_coef_delta = 0.125;
  given.args.entropy_target = 100;
  given.args.max_steps = 2;
  given.args.logging_steps = 1;
  given.args.save_strategy = "steps";
  given.args.save_steps = 1;
  GRPOTrainer(given).train();
  const auto folder = folder_ / "checkpoint-1";
  auto state = read_json(folder / "entropy_ctrl_state.json");
  EXPECT_EQ(state["entropy_coef"], 0.375);
  EXPECT_GT(state["last_world_entropy"], 0);

  // As a checkpoint of trl.
  state["entropy_coef"] = 0.5;
  write_file_atomically(folder / "entropy_ctrl_state.json", dump_json(state));
  std::filesystem::remove(folder / "manifest.json");
  given.model = options(ones).model;
  GRPOTrainer trainer(given);
  trainer.train(Resume::from(folder));
  std::vector<double> logged;
  for (const auto& entry : trainer.state().log_history)
    if (entry.contains("entropy_coef")) logged.push_back(entry["entropy_coef"]);
  EXPECT_EQ(logged, (std::vector<double>{0.375, 0.625}));
}

TEST_F(Grpo, RefusesACollatorOfTheUsers) {
  auto given = options(ones);
  given.data_collator = default_data_collator;
  expect_error([&] { GRPOTrainer trainer(given); }, "G-TRL-1",
               {"GRPOTrainer does not take data_collator"});
}

TEST_F(Grpo, RefusesWrongNumbersOfRewards) {
  const auto train = [&](const RewardFunction& reward) { GRPOTrainer(options(reward)).train(); };
  expect_error([&] { train([](const RewardInputs&) { return std::vector<double>{1}; }); },
               "G-RWD-1", {"given", "1 numbers for 4"});
  expect_error([&] { train([](const RewardInputs&) { return std::vector<double>(4, INFINITY); }); },
               "G-RWD-1", {"infinite"});
}

TEST_F(Grpo, RefusesRewardModelsThatAreNone) {
  auto given = options(ones);
  given.reward_funcs = {{"judge", std::shared_ptr<Model>(options(ones).model)}};
  expect_error([&] { GRPOTrainer trainer(given); }, "G-TRL-1", {"judge", "no tokenizer"});
  given.reward_processing_classes = {tokenizer_, nullptr};
  expect_error([&] { GRPOTrainer trainer(given); }, "G-TRL-1", {"2 reward_processing_classes"});
  given.reward_processing_classes = {tokenizer_};
  GRPOTrainer trainer(given);
  expect_error([&] { trainer.train(); }, "G-RWD-1", {"judge", "sequence classification"});
}

TEST_F(Grpo, RefusesAProcessThatAnswersWithNaN) {
  auto given = options(ones);
  given.reward_funcs = {command_reward(
      "process", {.command = "while read line; do echo '{\"rewards\": [NaN, 1, 1, 1]}'; done"})};
  GRPOTrainer trainer(given);
  expect_error([&] { trainer.train(); }, "G-RWD-2", {"NaN"});
}

TEST_F(Grpo, GoesOnWhereNoRewardApplies) {
  const auto nothing = [](const RewardInputs&) { return std::vector<double>(4, std::nan("")); };
  GRPOTrainer trainer(options(nothing));
  EXPECT_EQ(trainer.train().training_loss, 0);
}

TEST_F(Grpo, RefusesPromptsWithoutRoomForACompletion) {
  auto given = options(ones);
  given.train_dataset = from_examples({{{"prompt", std::string(200, 'q')}}, {{"prompt", "a"}}});
  GRPOTrainer trainer(std::move(given));
  expect_error([&] { trainer.train(); }, "G-TRL-2", {"row 0", "200 tokens", "room for 24"});
}

TEST_F(Grpo, RefusesGroupsThatDoNotFit) {
  auto given = options(ones);
  given.args.num_generations = 3;
  expect_error([&] { GRPOTrainer trainer(given); }, "G-TRL-1", {"num_generations (3)"});
  given.args.num_generations = 2;
  given.reward_funcs.clear();
  expect_error([&] { GRPOTrainer trainer(given); }, "G-TRL-1", {"no reward"});
}

TEST_F(Grpo, ChecksWhatARolloutFunctionReturns) {
  auto given = options(ones);
  given.rollout_func = [](const std::vector<Example>& rows, Trainer&) {
    Rollouts made;
    made.prompt_ids.assign(rows.size(), {5});
    made.completion_ids.assign(rows.size(), {6});
    made.completion_ids.back().clear();
    return made;
  };
  GRPOTrainer trainer(std::move(given));
  expect_error([&] { trainer.train(); }, "G-TRL-2", {"rollout_func", "row 3"});
}

}  // namespace
}  // namespace gradus
