// What the trainers of preferences refuse and accept; tests/differential/preference_test.py
// compares their numbers with trl.
#include <fmt/format.h>
#include <gradus/data/collators.h>
#include <gradus/models/auto_model.h>
#include <gradus/text/tokenizer.h>
#include <gradus/trainers/dpo.h>
#include <gradus/trainers/kto.h>
#include <gradus/trainers/reward.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "../../silent_log.h"
#include "../error_of.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

class Preferences : public ::testing::Test {
 protected:
  Preferences() : folder_(fs::temp_directory_path() / fmt::format("gradus-pref-{}", ::getpid())) {
    set_log_sink(std::make_shared<testing::SilentLog>());
    fs::create_directories(folder_);
    ::setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    std::ofstream(folder_ / "words.txt") << "the cat may go or sleep all day\n";
    tokenizer_ = Tokenizer::train_bpe({folder_ / "words.txt"}, {.vocab_size = 280});
  }
  ~Preferences() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    ::unsetenv("XDG_CACHE_HOME");
    set_log_sink(nullptr);
  }

  std::shared_ptr<PreTrainedModel> model(ModelTask task = ModelTask::causal_lm,
                                         int64_t labels = 1) const {
    return model_from_config(task, {{"model_type", "llama"},
                                    {"vocab_size", tokenizer_->full_vocab_size()},
                                    {"hidden_size", 8},
                                    {"intermediate_size", 8},
                                    {"num_hidden_layers", 1},
                                    {"num_attention_heads", 1},
                                    {"num_labels", labels}});
  }
  static std::shared_ptr<Dataset> rows() {
    return from_examples({{{"prompt", "the cat"}, {"chosen", " may go"}, {"rejected", " or"}},
                          {{"prompt", "all"}, {"chosen", " day"}, {"rejected", " sleep"}}});
  }
  DPOTrainerOptions dpo() const {
    DPOTrainerOptions options;
    options.model = model();
    options.args.output_dir = (folder_ / "run").string();
    options.args.max_steps = 2;
    options.args.bf16 = false;
    options.args.save_strategy = "no";
    options.args.disable_tqdm = true;
    options.args.report_to = {"none"};
    options.train_dataset = rows();
    options.processing_class = tokenizer_;
    return options;
  }

  fs::path folder_;
  std::shared_ptr<Tokenizer> tokenizer_;
};

TEST_F(Preferences, AReferenceIsNotTheModelItself) {
  auto options = dpo();
  options.ref_model = options.model;
  expect_error([&] { DPOTrainer trainer(options); }, "G-TRL-1",
               {"ref_model is the model that is trained", "Leave ref_model out"});
}

TEST_F(Preferences, WhatTrlDoesNotTakeIsRefused) {
  auto with_loss = dpo();
  with_loss.compute_loss_func = [](const ModelOutput&, const torch::Tensor&, const auto&) {
    return torch::zeros({});
  };
  expect_error([&] { DPOTrainer trainer(with_loss); }, "G-TRL-1",
               {"DPOTrainer does not take compute_loss_func"});
  auto with_maker = dpo();
  with_maker.model_init = [this] { return model(); };
  expect_error([&] { DPOTrainer trainer(with_maker); }, "G-TRL-1",
               {"DPOTrainer does not take model_init"});
}

TEST_F(Preferences, ARewardModelHasOneLabel) {
  RewardTrainerOptions options;
  options.model = model(ModelTask::sequence_classification, 2);
  options.args.output_dir = (folder_ / "run").string();
  options.args.bf16 = false;
  options.train_dataset = rows();
  options.processing_class = tokenizer_;
  expect_error([&] { RewardTrainer trainer(options); }, "G-TRL-1", {"2 labels: expected 1"});
}

TEST_F(Preferences, EvaluatesRowsThatAreGivenLater) {
  DPOTrainer trainer(dpo());
  const auto before = trainer.evaluate(rows());
  trainer.train();
  const auto after = trainer.evaluate(rows());
  EXPECT_EQ(before.at("eval_rewards/margins"), 0);
  EXPECT_NE(after.at("eval_rewards/margins"), 0);
}

TEST_F(Preferences, PrecomputedNumbersCannotBeMadeAfterTraining) {
  auto options = dpo();
  options.args.precompute_ref_log_probs = true;
  DPOTrainer trainer(options);
  trainer.train();
  expect_error([&] { trainer.evaluate(rows()); }, "G-TRL-1",
               {"cannot be computed any more", "give ref_model"});
}

TEST_F(Preferences, ThePromptIsWhatBothCompletionsBeginWith) {
  auto options = dpo();
  options.train_dataset = from_examples({{{"chosen", "the cat may"}, {"rejected", "the cat go"}},
                                         {{"chosen", "all"}, {"rejected", "day"}}});
  int64_t rows_seen = 0;
  std::vector<int64_t> prompts;
  options.data_collator = [&](std::vector<Example> batch) {
    for (const auto& row : batch) {
      ++rows_seen;
      prompts.push_back(int64_t(row["prompt_ids"].ints().size()));
    }
    return DataCollatorForPreference({})(std::move(batch));
  };
  options.args.max_steps = 1;
  DPOTrainer(options).train();
  std::sort(prompts.begin(), prompts.end());
  EXPECT_EQ(rows_seen, 2);
  EXPECT_EQ(prompts.front(), 0);
  EXPECT_EQ(prompts.back(), int64_t(tokenizer_->encode("the cat").ids().size()));
}

}  // namespace
}  // namespace gradus
