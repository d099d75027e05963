#include <gradus/core/error.h>
#include <gradus/engine/evaluator.h>
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "../error_of.h"

namespace gradus {
namespace {

// Seven rows, three to a batch: x = 0, 1, …, 6 and labels = 10 x.
DataLoader seven_rows(int64_t batch_size = 3) {
  const auto x = torch::arange(7, torch::kFloat);
  return tensor_loader({{"x", x}, {"labels", 10 * x}}, {.batch_size = batch_size});
}

// The loss of a batch is the mean of its rows, its prediction 2 x.
PredictionStep doubled(const Batch& batch) {
  return {.loss = batch["x"].mean(), .logits = {2 * batch["x"]}, .labels = {batch["labels"]}};
}

// Rows of one batch are equally long; those of the second are longer.
PredictionStep of_its_own_width(const Batch& batch) {
  const auto width = batch.rows() == 3 ? int64_t{2} : int64_t{4};
  return {.loss = {},
          .logits = {batch["x"].unsqueeze(1).expand({-1, width})},
          .labels = {batch["labels"]}};
}

TEST(Evaluator, GivesPredictionsLabelsMeanLossAndMetrics) {
  const Evaluator evaluator({.compute_metrics = [](const EvalPrediction& p) -> Metrics {
    return {{"rows", double(p.predictions.size(0))}, {"eval_last", p.label_ids[6].item<double>()}};
  }});
  const auto output = evaluator.run(seven_rows(), doubled);
  EXPECT_TRUE(torch::equal(output.prediction.predictions, 2 * torch::arange(7, torch::kFloat)));
  EXPECT_TRUE(torch::equal(output.prediction.label_ids, 10 * torch::arange(7, torch::kFloat)));
  EXPECT_EQ(output.num_samples, 7);
  EXPECT_EQ(output.metrics, (Metrics{{"eval_last", 60}, {"eval_loss", 3}, {"eval_rows", 7}}))
      << "the last, short batch counts for one row";
}

TEST(Evaluator, PadsShorterRows) {
  const auto output = Evaluator({}).run(seven_rows(), of_its_own_width);
  const auto& rows = output.prediction.predictions;
  ASSERT_EQ(rows.sizes(), (torch::IntArrayRef{7, 4}));
  EXPECT_EQ(rows[5][1].item<float>(), 5);
  EXPECT_EQ(rows[5][2].item<float>(), -100);
  EXPECT_EQ(rows[6][3].item<float>(), 6);
  EXPECT_TRUE(output.metrics.empty()) << "there was no loss";
}

TEST(Evaluator, KeepsBatchesApart) {
  for (const auto& steps : {std::optional<int64_t>(), std::optional<int64_t>(2)}) {
    EvalPrediction seen;
    const Evaluator evaluator({.compute_metrics = [&](const EvalPrediction& p) -> Metrics {
                                 seen = p;
                                 return {};
                               },
                               .include_for_metrics = {"inputs", "loss"},
                               .eval_do_concat_batches = false,
                               .eval_accumulation_steps = steps,
                               .main_input_name = "x"});
    const auto output = evaluator.run(seven_rows(), doubled);
    EXPECT_FALSE(seen.predictions.defined() || seen.label_ids.defined());
    EXPECT_FALSE(seen.inputs.defined() || seen.losses.defined());
    ASSERT_EQ(seen.prediction_batches.size(), 3U);
    ASSERT_EQ(seen.input_batches.size(), 3U);
    ASSERT_EQ(seen.loss_batches.size(), 3U);
    EXPECT_TRUE(torch::equal(seen.prediction_batches[2].at(0), torch::tensor({12.F})));
    EXPECT_TRUE(torch::equal(seen.label_batches[1].at(0), torch::tensor({30.F, 40.F, 50.F})));
    EXPECT_TRUE(torch::equal(seen.input_batches[1], torch::tensor({3.F, 4.F, 5.F})));
    EXPECT_TRUE(torch::equal(seen.loss_batches[0], torch::tensor({1.F, 1.F, 1.F})));
    EXPECT_EQ(output.metrics.at("eval_loss"), 3);
  }
}

// Batches that cannot be joined, because they differ in the third dimension.
TEST(Evaluator, InputsThatStayApartNeedNotFitTogether) {
  int64_t batches = 0;
  const Evaluator evaluator({.compute_metrics = [&](const EvalPrediction& p) -> Metrics {
                               return {{"width", double(p.input_batches.back().size(2))}};
                             },
                             .include_for_metrics = {"inputs"},
                             .eval_do_concat_batches = false,
                             .main_input_name = "image"});
  struct Images : BatchSource {
    std::optional<Batch> next() override {
      if (++width > 3) return std::nullopt;
      return Batch{{"image", torch::ones({2, 1, width})}, {"labels", torch::ones({2})}};
    }
    void reset(int64_t) override { width = 0; }
    int64_t width = 0;
  };
  const auto output =
      evaluator.run(DataLoader(std::make_shared<Images>()), [&](const Batch& batch) {
        ++batches;
        return PredictionStep{.loss = {}, .logits = {batch["labels"]}, .labels = {batch["labels"]}};
      });
  EXPECT_EQ(output.metrics, (Metrics{{"eval_width", 3}}));
  EXPECT_EQ(batches, 3);
  EXPECT_EQ(output.num_samples, 6) << "counted, because the loader does not know";
}

TEST(Evaluator, BatchesApartAreFloat32WhereNumpyHasNoType) {
  const auto output =
      Evaluator({.eval_do_concat_batches = false}).run(seven_rows(), [](const Batch& batch) {
        auto step = doubled(batch);
        step.logits[0] = step.logits[0].to(torch::kBFloat16);
        return step;
      });
  EXPECT_EQ(output.prediction.prediction_batches[0].at(0).scalar_type(), torch::kFloat);
}

TEST(Evaluator, MetricsPerBatch) {
  std::vector<int64_t> rows;
  std::vector<bool> last;
  Names columns;
  EvaluatorOptions options{
      .compute_metrics = [&](const EvalPrediction& p, bool compute_result) -> Metrics {
        rows.push_back(p.predictions.size(0));
        last.push_back(compute_result);
        columns = p.input_columns.names();
        return {{"calls", double(rows.size())}};
      },
      .include_for_metrics = {"inputs"},
      .batch_eval_metrics = true,
      .keep_predictions = false};
  const auto output = Evaluator(options).run(seven_rows(), doubled);
  EXPECT_EQ(rows, (std::vector<int64_t>{3, 3, 1}));
  EXPECT_EQ(last, (std::vector<bool>{false, false, true}));
  EXPECT_EQ(columns, (Names{"x", "labels"})) << "transformers gives the whole batch";
  EXPECT_EQ(output.metrics, (Metrics{{"eval_calls", 3}, {"eval_loss", 3}}));
  EXPECT_FALSE(output.prediction.predictions.defined());

  options.keep_predictions = true;
  EXPECT_EQ(Evaluator(options).run(seven_rows(), doubled).prediction.predictions.size(0), 7);
}

TEST(Evaluator, WithoutPredictionsOrLabelsThereAreNoMetricsButTheLoss) {
  const Evaluator evaluator(
      {.compute_metrics = [](const EvalPrediction&) -> Metrics { return {{"never", 1}}; },
       .metric_key_prefix = "test"});
  const auto loss_only = [](const Batch& batch) {
    return PredictionStep{.loss = batch["x"].mean(), .logits = {}, .labels = {}};
  };
  EXPECT_EQ(evaluator.run(seven_rows(), loss_only).metrics, (Metrics{{"test_loss", 3}}));
  const auto no_labels = [](const Batch& batch) {
    return PredictionStep{.loss = {}, .logits = {batch["x"]}, .labels = {}};
  };
  EXPECT_TRUE(evaluator.run(seven_rows(), no_labels).metrics.empty());
}

TEST(Evaluator, TheLossIsWeighedAsAsked) {
  const auto loss_with = [](EvaluatorOptions options) {
    return Evaluator(std::move(options)).run(seven_rows(), doubled).metrics.at("eval_loss");
  };
  EXPECT_EQ(loss_with({}), (3 * 1 + 3 * 4 + 6) / 7.0);
  EXPECT_EQ(loss_with({.rows_of_loss = [](const Batch&) { return int64_t{1}; }}), 11 / 3.0F);
  EXPECT_EQ(loss_with({.tokens_of_loss =
                           [](const Batch& batch) { return int64_t(batch.rows() == 1 ? 4 : 1); }}),
            (1 + 4 + 4 * 6) / 6.0);
}

TEST(Evaluator, PredictionsAreChangedBeforeTheyAreKept) {
  const Evaluator evaluator(
      {.preprocess_logits = [](const TensorList& logits, const TensorList& labels) -> TensorList {
        return {logits.at(0) + labels.at(0), labels.at(0)};
      }});
  const auto output = evaluator.run(seven_rows(), doubled);
  ASSERT_EQ(output.prediction.prediction_parts.size(), 2U);
  EXPECT_FALSE(output.prediction.predictions.defined()) << "there are two";
  EXPECT_EQ(output.prediction.prediction_parts[0][6].item<float>(), 72);
}

TEST(Evaluator, SaysWhenABatchIsDoneAndThrowsWhatFails) {
  int done = 0;
  const Evaluator evaluator({.after_batch = [&] { ++done; }});
  evaluator.run(seven_rows(), doubled);
  EXPECT_EQ(done, 3);
  const auto one_more_each_time = [&](const Batch& batch) {
    auto step = doubled(batch);
    step.logits.resize(size_t(done), batch["x"]);
    return step;
  };
  EXPECT_EQ(
      message_of("G-TRAIN-17", [&] { evaluator.run(seven_rows(), one_more_each_time); }),
      "the batches of the evaluation cannot be joined: batch 1 gave 4 tensors, the first one 3");
}

// Two threads as two processes: each waits for the other's rows.
struct TwoThreads {
  std::barrier<> both{2};
  torch::Tensor rows[2];
};

struct ThreadStrategy : Strategy {
  ThreadStrategy(TwoThreads& threads, int64_t rank) : threads_(threads), rank_(rank) {}
  int64_t world_size() const override { return 2; }
  int64_t rank() const override { return rank_; }
  torch::Tensor gather(const torch::Tensor& rows) override {
    threads_.rows[rank_] = rows;
    threads_.both.arrive_and_wait();
    auto all = torch::cat({threads_.rows[0], threads_.rows[1]});
    threads_.both.arrive_and_wait();
    return all;
  }
  TwoThreads& threads_;
  int64_t rank_;
};

TEST(Evaluator, GathersTheRowsOfAllProcesses) {
  TwoThreads threads;
  EvalLoopOutput outputs[2];
  const auto evaluate = [&](int64_t rank) {
    const auto x = torch::arange(4, torch::kFloat) + 4 * double(rank);
    ThreadStrategy strategy(threads, rank);
    const Evaluator evaluator({.include_for_metrics = {"loss"}, .strategy = &strategy});
    outputs[rank] = evaluator.run(tensor_loader({{"x", x}, {"labels", 10 * x}}, {.batch_size = 2}),
                                  [&](const Batch& batch) {
                                    auto step = doubled(batch);
                                    step.logits = {batch["x"].unsqueeze(1).expand({-1, 1 + rank})};
                                    return step;
                                  });
  };
  std::thread other([&] { evaluate(1); });
  evaluate(0);
  other.join();
  for (const auto& output : outputs) {
    const auto& found = output.prediction;
    EXPECT_TRUE(torch::equal(found.label_ids,
                             10 * torch::tensor({0.F, 1.F, 4.F, 5.F, 2.F, 3.F, 6.F, 7.F})));
    EXPECT_TRUE(torch::equal(found.predictions.slice(0, 0, 3),
                             torch::tensor({{0.F, -100.F}, {1.F, -100.F}, {4.F, 4.F}})));
    EXPECT_TRUE(torch::equal(found.losses,
                             torch::tensor({0.5F, 0.5F, 4.5F, 4.5F, 2.5F, 2.5F, 6.5F, 6.5F})));
    EXPECT_EQ(output.metrics.at("eval_loss"), 3.5) << "the mean over the rows of both";
  }
}

// Five rows in two batches of 4: three rows are repeated, and neither predictions nor losses of
// them count. The loss of process 1, of rows 4, 0, 1 and 2, counts for row 4.
TEST(Evaluator, LeavesOutRowsThatWereRepeated) {
  TwoThreads threads;
  EvalLoopOutput outputs[2];
  const auto x = torch::arange(5, torch::kFloat);
  const auto evaluate = [&](int64_t rank) {
    ThreadStrategy strategy(threads, rank);
    const Evaluator evaluator(
        {.include_for_metrics = {"loss"}, .batch_size = 4, .strategy = &strategy});
    const DataLoader loader({.dataset = from_tensors({{"x", x}, {"labels", 10 * x}}),
                             .batch_size = 4,
                             .shard = {.rank = rank, .world = 2}});
    outputs[rank] = evaluator.run(loader, [&](const Batch& batch) {
      PredictionStep step;
      step.loss = batch["x"].mean();
      step.logits = {batch["x"]};
      step.labels = {batch["labels"]};
      return step;
    });
  };
  std::thread other([&] { evaluate(1); });
  evaluate(0);
  other.join();
  for (const auto& output : outputs) {
    EXPECT_TRUE(torch::equal(output.prediction.predictions, x));
    EXPECT_TRUE(torch::equal(output.prediction.label_ids, 10 * x));
    EXPECT_TRUE(
        torch::equal(output.prediction.losses, torch::tensor({1.5F, 1.5F, 1.5F, 1.5F, 1.75F})));
    EXPECT_FLOAT_EQ(float(output.metrics.at("eval_loss")), 1.55F);
    EXPECT_EQ(output.num_samples, 5);
  }
}

TEST(Evaluator, OfNothingIsNothing) {
  const auto none = tensor_loader({{"x", torch::empty({0})}, {"labels", torch::empty({0})}});
  const auto output = Evaluator({}).run(none, doubled);
  EXPECT_EQ(output.num_samples, 0);
  EXPECT_TRUE(output.metrics.empty());
  EXPECT_FALSE(output.prediction.predictions.defined());
}

}  // namespace
}  // namespace gradus
