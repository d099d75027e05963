// activation_memory_budget in runs: their bits are those of a run that recomputes nothing.
#include <gradus/core/error.h>
#include <gradus/models/auto_model.h>

#include "regression.h"

namespace gradus::testing {
namespace {

std::shared_ptr<PreTrainedModel> budgeted_gpt2() {
  torch::manual_seed(2);
  return AutoModelForCausalLM::from_config({{"model_type", "gpt2"},
                                            {"vocab_size", 32},
                                            {"n_positions", 16},
                                            {"n_embd", 16},
                                            {"n_layer", 4},
                                            {"n_head", 2}});
}

std::shared_ptr<Dataset> budgeted_rows() {
  const auto ids = torch::arange(64 * 8).reshape({64, 8}).remainder(31);
  return from_tensors({{"input_ids", ids}, {"labels", ids}});
}

Trainer budgeted(const std::string& folder, std::optional<double> budget,
                 bool gradient_checkpointing = false) {
  TrainingArguments args{.output_dir = folder,
                         .max_steps = 6,
                         .learning_rate = 1e-2,
                         .gradient_checkpointing = gradient_checkpointing,
                         .logging_steps = 1,
                         .disable_tqdm = true,
                         .save_steps = 3,
                         .full_determinism = on_gpu(),
                         .use_cpu = !on_gpu(),
                         .activation_memory_budget = budget};
  return Trainer({.model = budgeted_gpt2(), .args = args, .train_dataset = budgeted_rows()});
}

/// What became of the model, and what was logged.
std::pair<std::map<std::string, torch::Tensor>, std::vector<json>> end_of(Trainer& trainer) {
  std::map<std::string, torch::Tensor> ends;
  for (const auto& item : trainer.model().state_dict()) ends[item.key()] = item.value().clone();
  return {ends, timeless(trainer.state().log_history)};
}

void expect_equal_ends(Trainer& one, Trainer& other, const std::string& what) {
  const auto [weights, logs] = end_of(one);
  const auto [other_weights, other_logs] = end_of(other);
  for (const auto& [name, value] : weights)
    EXPECT_TRUE(torch::equal(value, other_weights.at(name))) << name << ", " << what;
  EXPECT_EQ(logs, other_logs) << what;
}

TEST(MemoryBudgetRun, HasTheBitsOfOneThatKeepsEverything) {
  Box box;
  auto whole = budgeted(box.dir("whole"), std::nullopt);
  whole.train();
  for (const double budget : {0.0, 0.4, 1.0}) {
    auto run = budgeted(box.dir(fmt::format("b{}", budget)), budget);
    run.train();
    expect_equal_ends(whole, run, fmt::format("budget {}", budget));
  }
}

TEST(MemoryBudgetRun, ResumesWithAnotherBudget) {
  Box box;
  auto whole = budgeted(box.dir("whole"), 0.4);
  whole.train();
  for (const auto budget :
       {std::optional(0.4), std::optional(0.9), std::optional(0.0), std::optional<double>()}) {
    auto resumed = budgeted(box.dir("resumed"), budget);
    resumed.train(Resume::from(fs::path(box.dir("whole")) / "checkpoint-3"));
    expect_equal_ends(whole, resumed, fmt::format("budget {}", budget.value_or(-1)));
  }
}

/// Counts the blocks that are computed again.
struct Watched : Model {
  ModelOutput forward(const Batch& inputs, const ForwardOptions&) override {
    return {{"loss", (inputs["input_ids"].to(weight.dtype()) * weight).mean()}};
  }
  void gradient_checkpointing_enable(const GradientCheckpointing& how) override { given = how; }
  torch::Tensor weight = register_parameter("weight", torch::ones({1}));
  std::optional<GradientCheckpointing> given;
};

TEST(MemoryBudgetRun, DecidesOverGradientCheckpointing) {
  const auto given = [](std::optional<double> budget, bool checkpointing) {
    Box box;
    const auto model = std::make_shared<Watched>();
    TrainingArguments args{.output_dir = box.dir("a"),
                           .max_steps = 1,
                           .gradient_checkpointing = checkpointing,
                           .disable_tqdm = true,
                           .save_strategy = "no",
                           .use_cpu = true,
                           .activation_memory_budget = budget};
    Trainer({.model = model, .args = args, .train_dataset = budgeted_rows()}).train();
    return model->given;
  };
  EXPECT_FALSE(given(std::nullopt, false));
  EXPECT_EQ(given(std::nullopt, true)->recomputed(8), 8);
  EXPECT_EQ(given(0.5, false)->recomputed(8), 5);
  EXPECT_EQ(given(0.5, true)->recomputed(8), 5);
  EXPECT_FALSE(given(1.0, true));
}

TEST(MemoryBudgetRun, NeedsAModelWithBlocks) {
  Box box;
  TrainingArguments args{.max_steps = 1, .activation_memory_budget = 0.5};
  auto options = regression(box, args);
  Trainer trainer(options);
  try {
    trainer.train();
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-MODEL-3");
    EXPECT_NE(std::string(error.what()).find("leave activation_memory_budget out"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace gradus::testing
