#include "trainers/metric_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <latch>

#include "several_processes.h"
#include "trainers/token_scores.h"

namespace gradus {
namespace {

torch::Tensor number(double value) { return torch::tensor(value); }

MetricBatch batch_of(double sum, double count, double least) {
  MetricBatch batch;
  batch.mean("ratio", number(sum), number(count));
  batch.mean_if_any("some", number(sum), number(count));
  batch.least("least", number(least));
  batch.tokens(number(10));
  return batch;
}

Logs written(MetricLog& log, bool training) {
  Logs logs;
  log.write(logs, training);
  return logs;
}

TEST(MetricLog, IsTheMeanOfTheBatchesSinceTheLastLog) {
  MetricLog log(nullptr);
  log.note(batch_of(6, 2, 4), true);
  log.note(batch_of(0, 0, 2), true);
  EXPECT_EQ(written(log, true), (Logs{{"ratio", 1.5},  // 0 for the second batch
                                      {"some", 3},     // which does not count here
                                      {"least", 3},
                                      {"num_tokens", 20}}));
  EXPECT_TRUE(written(log, true).empty());
}

TEST(MetricLog, KeepsEvaluationsApart) {
  MetricLog log(nullptr);
  log.note(batch_of(6, 2, 4), true);
  log.note(batch_of(8, 2, 5), false);
  EXPECT_EQ(
      written(log, false),
      (Logs{{"eval_ratio", 4}, {"eval_some", 4}, {"eval_least", 5}, {"eval_num_tokens", 10}}));
  EXPECT_EQ(written(log, true).at("ratio"), 3);
}

TEST(MetricLog, TakesMetricsThatOnlySomeBatchesHave) {
  MetricLog log(nullptr);
  MetricBatch first, second;
  first.mean("a", number(1), number(1));
  second.mean("b", number(5), number(1));
  second.mean("a", number(3), number(1));
  log.note(first, true);
  log.note(second, true);
  EXPECT_EQ(written(log, true), (Logs{{"a", 2}, {"b", 5}}));
}

TEST(MetricLog, DifferencesNeedBothSides) {
  MetricLog log(nullptr);
  for (const double rejected : {0.0, 1.0}) {
    MetricBatch batch;
    batch.mean_if_any("chosen", number(5), number(1));
    batch.mean_if_any("rejected", number(2 * rejected), number(rejected));
    batch.difference("margin", "chosen", "rejected");
    log.note(batch, true);
  }
  EXPECT_EQ(written(log, true), (Logs{{"chosen", 5}, {"margin", 3}, {"rejected", 2}}));
}

TEST(MetricLog, StateBringsBackWhatWasNotLogged) {
  MetricLog log(nullptr), restored(nullptr);
  log.note(batch_of(1, 3, -7), true);
  restored.load_state_dict(nlohmann::json::parse(log.state_dict().dump()));
  for (auto* each : {&log, &restored}) each->note(batch_of(2, 7, 1), true);
  EXPECT_EQ(written(log, true), written(restored, true));
}

TEST(MetricLog, WhatIsNotANumberDoesNotCount) {
  MetricLog log(nullptr);
  for (const double value : {1.0, std::nan(""), 3.0}) {
    MetricBatch batch;
    batch.mean_unless_nan("mean", number(value), number(1));
    batch.least_unless_nan("least", number(value));
    batch.greatest_unless_nan("never", number(std::nan("")));
    log.note(batch, true);
  }
  EXPECT_EQ(written(log, true), (Logs{{"mean", 2}, {"least", 2}}));
}

TEST(MetricLog, ProcessesExchangeNumbersWithTheLogOnly) {
  std::latch first_has_noted(1);
  testing::in_processes(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    MetricLog log(group);
    const bool is_first = group->rank() == 0;
    if (!is_first) first_has_noted.wait();
    for (const double sum : {2.0, 4.0}) {
      auto batch = batch_of(sum, is_first ? 1 : 3, is_first ? 5 : 7);
      batch.greatest_unless_nan("greatest", number(is_first ? std::nan("") : sum));
      log.note(batch, true);
    }
    // Had a batch been exchanged, the first process would still wait for the second.
    if (is_first) first_has_noted.count_down();
    EXPECT_EQ(
        written(log, true),
        (Logs{{"ratio", 1.5}, {"some", 1.5}, {"least", 5}, {"greatest", 3}, {"num_tokens", 40}}));
  });
}

TEST(MetricLog, SumsOfALastBatchAreThoseOfTheFirstProcesses) {
  testing::in_processes(2, [](const std::shared_ptr<ProcessGroup>& group) {
    MetricLog log(group);
    const double value = group->rank() == 0 ? 1 : 7;
    auto batch = batch_of(value, 1, value + 1);
    batch.mean("of all", number(value));
    log.note(batch, false, /*processes=*/1);
    EXPECT_EQ(written(log, false), (Logs{{"eval_ratio", 1},
                                         {"eval_some", 1},
                                         {"eval_least", 2},
                                         {"eval_of all", 4},
                                         {"eval_num_tokens", 0}}));
  });
}

TEST(MetricLog, TheStateOfTheFirstProcessHasAllNumbers) {
  testing::in_processes(2, [](const std::shared_ptr<ProcessGroup>& group) {
    MetricLog log(group);
    log.note(batch_of(group->rank() == 0 ? 1 : 7, 2, 0), true);
    log.gather_state();
    EXPECT_EQ(log.state_dict().at("means")[0], nlohmann::json({"ratio", 2.0, 1.0}));
  });
}

TEST(TokenScores, AreThoseOfTheNextToken) {
  const auto logits = torch::tensor({{{0.0f, 2.0f, 1.0f}, {3.0f, 0.0f, 0.0f}, {9.0f, 9.0f, 9.0f}}});
  const auto labels = torch::tensor({{int64_t{0}, int64_t{1}, int64_t{-100}}});
  const auto scores = score_tokens(
      logits, labels,
      {.entropy = true, .mean_logits = true, .is_top1 = true, .log_sum_sq_probs = true});
  const auto p = torch::softmax(logits[0][0], 0);
  EXPECT_TRUE(scores.mask.equal(torch::tensor({{true, false}})));
  EXPECT_TRUE(scores.is_top1.equal(torch::tensor({{true, false}})));
  const auto near = [](const torch::Tensor& scores, const torch::Tensor& first) {
    return torch::allclose(scores, torch::stack({first, torch::zeros({})}).unsqueeze(0));
  };
  EXPECT_TRUE(near(scores.log_probs, p[1].log()));
  EXPECT_TRUE(near(scores.entropy, -(p * p.log()).sum()));
  EXPECT_TRUE(near(scores.mean_logits, torch::tensor(1.0f)));
  EXPECT_TRUE(near(scores.log_sum_sq_probs, p.square().sum().log()));
}

}  // namespace
}  // namespace gradus
