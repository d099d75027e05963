// What a step will need, against peaks that were measured on an H200
// (benchmarks/results/gpu-2026-11-15.md).
#include <gradus/core/error.h>
#include <gradus/tasks/memory_plan.h>
#include <gtest/gtest.h>

namespace gradus {
namespace {

using nlohmann::json;

constexpr double kGibi = 1024.0 * 1024 * 1024;

PlannedStep gpt2() {
  return {.config = {{"model_type", "gpt2"},
                     {"vocab_size", 50257},
                     {"n_embd", 768},
                     {"n_layer", 12},
                     {"n_head", 12}},
          .parameters = 124'439'808,
          .trainable = 124'439'808,
          .rows = 16,
          .tokens = 1024,
          .precision = "bf16",
          .master_weights = true,
          .fused = true};
}

PlannedStep llama() {
  auto step = gpt2();
  step.config = {{"model_type", "llama"},   {"vocab_size", 128256},
                 {"hidden_size", 2048},     {"intermediate_size", 8192},
                 {"num_hidden_layers", 16}, {"num_attention_heads", 32},
                 {"num_key_value_heads", 8}};
  step.parameters = step.trainable = 1'235'814'400;
  step.rows = 4;
  step.tokens = 2048;
  return step;
}

PlannedStep qwen() {
  auto step = gpt2();
  step.config = {{"model_type", "qwen2"},   {"vocab_size", 151936},
                 {"hidden_size", 896},      {"intermediate_size", 4864},
                 {"num_hidden_layers", 24}, {"num_attention_heads", 14},
                 {"num_key_value_heads", 2}};
  step.parameters = step.trainable = 494'032'768;
  return step;
}

PlannedStep bert() {
  auto step = gpt2();
  step.config = {{"model_type", "bert"},
                 {"vocab_size", 30522},
                 {"hidden_size", 768},
                 {"num_hidden_layers", 12},
                 {"intermediate_size", 3072}};
  step.parameters = step.trainable = 109'483'778;
  step.rows = 32;
  step.tokens = 128;
  return step;
}

TEST(MemoryPlan, IsWithinATenthOfWhatWasMeasured) {
  const std::vector<std::pair<PlannedStep, double>> measured = {
      {gpt2(), 6.81}, {llama(), 23.52}, {qwen(), 17.37}, {bert(), 2.82}};
  for (const auto& [step, peak] : measured)
    EXPECT_NEAR(plan_memory(step).total() / kGibi, peak, 0.1 * peak) << step.config;
}

TEST(MemoryPlan, IsWithinATwentiethOfWhatWasMeasuredWithCheckpointing) {
  std::vector<std::pair<PlannedStep, double>> measured = {
      {gpt2(), 2.58}, {llama(), 19.46}, {qwen(), 8.49}, {bert(), 1.83}};
  for (auto& [step, peak] : measured) {
    step.checkpointing.emplace();
    EXPECT_NEAR(plan_memory(step).total() / kGibi, peak, 0.05 * peak) << step.config;
  }
}

TEST(MemoryPlan, TheLargestBatchFitsAndOneMoreDoesNot) {
  for (auto step : {gpt2(), llama(), bert()}) {
    const double memory = 40e9;
    step.rows = largest_batch(step, memory);
    ASSERT_GT(step.rows, 0);
    EXPECT_LE(plan_memory(step).total(), memory);
    ++step.rows;
    EXPECT_GT(plan_memory(step).total(), memory);
  }
  EXPECT_EQ(largest_batch(llama(), 10e9), 0);
}

TEST(MemoryPlan, CheckpointingLeavesLittleOfTheActivations) {
  auto step = qwen();
  const double before = plan_memory(step).activations;
  step.checkpointing.emplace();
  EXPECT_LT(plan_memory(step).activations, 0.2 * before);
}

TEST(MemoryPlan, ABudgetIsTheShareOfTheActivations) {
  for (auto step : {gpt2(), llama(), qwen(), bert()}) {
    const double all = plan_memory(step).activations;
    double before = all;
    for (const double budget : {0.9, 0.7, 0.5, 0.3}) {
      step.checkpointing = {.memory_budget = budget};
      const auto terms = plan_memory(step);
      const double kept = terms.activations;
      EXPECT_LE(kept, budget * all) << step.config;
      if (terms.gradients == 0) {  // else the peak is at the end of the backward pass
        EXPECT_GT(kept, (budget - 0.1) * all) << step.config;
      }
      EXPECT_LT(kept, before) << step.config;
      before = kept;
    }
  }
}

TEST(MemoryPlan, CountsTheBlocksThatAreComputedAgain) {
  auto step = qwen();
  const double all = plan_memory(step).activations;
  step.checkpointing.emplace();
  const double none = plan_memory(step).activations;
  step.checkpointing->every_n_layers = 2;
  const double half = plan_memory(step).activations;
  EXPECT_NEAR(half, (all + none) / 2, 0.1 * all);
  *step.checkpointing = {.offload = true};
  EXPECT_LT(plan_memory(step).activations, 0.8 * none);
}

TEST(MemoryPlan, AnAdapterNeedsNoStateForTheRest) {
  auto step = llama();
  step.trainable = 5'000'000;
  const auto terms = plan_memory(step);
  EXPECT_NEAR(terms.optimizer, 8 * 5e6, 1);
  EXPECT_NEAR(terms.weights, 2 * double(step.parameters), 1);
  EXPECT_NEAR(terms.masters, 4 * 5e6, 1);  // frozen values in float32 are in host memory
  step.half = step.parameters;             // loaded as bfloat16
  EXPECT_NEAR(plan_memory(step).weights, 2 * double(step.parameters), 1);
}

TEST(MemoryPlan, AccumulatedGradientsAreThereAllTheTime) {
  auto step = gpt2();
  const auto alone = plan_memory(step);
  step.accumulation = 4;
  const auto window = plan_memory(step);
  EXPECT_EQ(alone.gradients, 0);
  EXPECT_EQ(window.gradients, 2.0 * 124'439'808);
  EXPECT_EQ(window.total() - alone.total(), window.gradients);
  step.rows = 1;
  step.tokens = 8;  // next to nothing is kept: the peak is at the end of the backward pass anyway
  const auto small = plan_memory(step);
  step.accumulation = 1;
  EXPECT_NEAR(small.total(), plan_memory(step).total(), 0.2 * small.total());
}

TEST(MemoryPlan, APairOfTextsIsTwoSequences) {
  auto step = llama();
  auto pairs = step;
  pairs.sequences = 2;
  pairs.rows = step.rows / 2;
  EXPECT_EQ(plan_memory(pairs).total(), plan_memory(step).total());
  EXPECT_EQ(largest_batch(pairs, 80e9), largest_batch(step, 80e9) / 2);
}

TEST(MemoryPlan, AdvisesUntilItFits) {
  auto step = llama();
  step.precision = "no";
  step.master_weights = false;
  step.rows = 64;
  const auto advice = memory_advice(step, 24e9);
  ASSERT_GE(advice.size(), 3u);
  EXPECT_EQ(advice[0].flag, "--bf16");
  EXPECT_EQ(advice[1].flag, "--gradient_checkpointing");
  EXPECT_EQ(advice[2].flag.substr(0, 29), "--per_device_train_batch_size");
  EXPECT_LE(advice.back().total, 24e9);
  for (size_t i = 1; i < advice.size(); ++i) EXPECT_LT(advice[i].total, advice[i - 1].total);
  EXPECT_TRUE(memory_advice(gpt2(), 80e9).empty());
  // A little too much: the largest budget that fits.
  const auto a_little = memory_advice(llama(), 24e9);
  ASSERT_EQ(a_little.size(), 1u);
  EXPECT_EQ(a_little[0].flag, "--activation_memory_budget 0.8");
  EXPECT_EQ(a_little[0].cost, "about 7 % more time");
  EXPECT_LE(a_little[0].total, 24e9);
  auto tighter = llama();
  tighter.checkpointing = {.memory_budget = 0.9};
  EXPECT_EQ(memory_advice(tighter, 24e9).at(0).flag, "--activation_memory_budget 0.8");
  tighter.checkpointing = {.memory_budget = 0.8};
  EXPECT_TRUE(memory_advice(tighter, 24e9).empty());
  tighter.checkpointing = {.memory_budget = 0.05};  // every block already
  EXPECT_NE(memory_advice(tighter, 10e9).at(0).flag, "--gradient_checkpointing");
  // Smaller parts of a step that has parts already.
  const auto words = advice[2].flag;
  step.accumulation = 3;
  const auto more = memory_advice(step, 24e9)[2].flag;
  const auto parts = [](const std::string& flag) {
    return std::stol(flag.substr(flag.rfind(' ')));
  };
  EXPECT_EQ(parts(more), 3 * parts(words));
}

TEST(MemoryPlan, SoundIsNotKnown) {  // its convolutions keep more than its blocks
  EXPECT_FALSE(knows_activations({{"model_type", "wav2vec2"}, {"hidden_size", 768}}));
}

TEST(MemoryPlan, SaysWhatItDoesNotKnow) {
  EXPECT_FALSE(knows_activations({{"model_type", "resnet"}}));
  EXPECT_FALSE(knows_activations(nullptr));
  try {
    plan_memory({.config = {{"model_type", "resnet"}}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-PLAN-1");
  }
}

}  // namespace
}  // namespace gradus
