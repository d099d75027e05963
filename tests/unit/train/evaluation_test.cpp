// Evaluation, prediction, data and optimizers of the Trainer: peer-tests.md 9.3 and 9.4.
#include <gradus/core/json.h>
#include <gradus/data/collators.h>
#include <gradus/optim/adafactor.h>
#include <gradus/optim/adamw.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/schedulers.h>
#include <gradus/optim/sgd.h>
#include <torch/nn/modules/linear.h>

#include "regression.h"
#include "train/label_smoother.h"

namespace gradus::testing {
namespace {

struct LoaderTrainer : Trainer {
  using Trainer::create_optimizer;
  using Trainer::create_optimizer_and_scheduler;
  using Trainer::get_eval_dataloader;
  using Trainer::get_train_dataloader;
  using Trainer::Trainer;
};

/// What evaluating 1.5 x + 2.5 must give, in closed form.
struct ClosedForm {
  explicit ClosedForm(const RegressionData& data, double shift = 0) {
    const auto y = 1.5 * data.x + 2.5;
    loss = torch::mse_loss(y, data.ys[0]).item<double>();
    accuracy = (y + shift - data.ys[0]).abs().le(0.25).to(torch::kDouble).mean().item<double>();
  }
  double loss, accuracy;
};

TrainerOptions evaluating(const Box& box, int64_t rows, TrainingArguments args = {}) {
  auto options = regression(box, std::move(args), 1.5, 2.5, 64, rows);
  options.compute_metrics = almost_accuracy;
  return options;
}

TEST(Evaluation, TestEvaluate) {
  for (const int64_t rows : {64, 66}) {
    Box box;
    Trainer trainer(evaluating(box, rows));
    const auto metrics = trainer.evaluate();
    const ClosedForm expected{RegressionData(rows)};
    EXPECT_NEAR(metrics.at("eval_loss"), expected.loss, 1e-5);
    EXPECT_NEAR(metrics.at("eval_accuracy"), expected.accuracy, 1e-5);
    for (const char* key : {"eval_runtime", "eval_samples_per_second", "eval_steps_per_second",
                            "epoch", "eval_model_preparation_time"})
      EXPECT_TRUE(metrics.contains(key)) << key;
  }
  Box box;
  auto options = evaluating(box, 64);
  options.preprocess_logits_for_metrics = [](const TensorList& logits, const TensorList&) {
    return TensorList{logits.front() + 1};
  };
  const auto metrics = Trainer(std::move(options)).evaluate();
  EXPECT_NEAR(metrics.at("eval_loss"), 0.3790205, 1e-5);
  EXPECT_NEAR(metrics.at("eval_accuracy"), ClosedForm(RegressionData(), 1).accuracy, 1e-5);
  EXPECT_EQ(error_of([&] {
              auto none = regression(box);
              none.eval_dataset = nullptr;
              Trainer(std::move(none)).evaluate();
            }).message(),
            "evaluate() needs an eval_dataset: the Trainer has none");
}

TEST(Evaluation, TestPredict) {
  for (const int64_t rows : {64, 66}) {
    Box box;
    const RegressionData data(rows);
    const auto found = Trainer(regression(box, {}, 1.5, 2.5)).predict(data.rows);
    EXPECT_TRUE(torch::allclose(found.predictions, 1.5 * data.x + 2.5));
    EXPECT_TRUE(torch::equal(found.label_ids, data.ys[0]));
    EXPECT_TRUE(found.metrics.contains("test_loss"));
  }
  Box box;
  auto options = regression(box);
  options.model = std::make_shared<RegressionModel>(1.5, 2.5, /*double_output=*/true);
  const auto twice = Trainer(std::move(options)).predict(RegressionData(66).rows);
  ASSERT_EQ(twice.prediction_parts.size(), 2U);
  EXPECT_FALSE(twice.predictions.defined());
  EXPECT_TRUE(torch::equal(twice.prediction_parts[0], twice.prediction_parts[1]));
}

TEST(Evaluation, PredictGivesEveryBatchWhenTheyAreNotToBeJoined) {
  Box box;
  const auto found =
      Trainer(regression(box, {.per_device_eval_batch_size = 4, .eval_do_concat_batches = false},
                         1.5, 2.5))
          .predict(RegressionData(10).rows);
  EXPECT_TRUE(found.prediction_parts.empty());
  ASSERT_EQ(found.prediction_batches.size(), 3U);
  ASSERT_EQ(found.label_batches.size(), 3U);
  EXPECT_TRUE(torch::allclose(found.prediction_batches[2].at(0),
                              1.5 * RegressionData(10).x.slice(0, 8) + 2.5));
  EXPECT_EQ(found.label_batches[2].at(0).size(0), 2);
}

TEST(Evaluation, WhatIsReturnedHasTheCountsOfTheLog) {
  Box box;
  Trainer trainer(regression(box, {.max_steps = 1, .include_num_input_tokens_seen = "all"}));
  EXPECT_TRUE(trainer.evaluate().contains("num_input_tokens_seen"));
  const auto metrics = trainer.train().metrics;
  EXPECT_TRUE(metrics.contains("num_input_tokens_seen"));
  EXPECT_TRUE(metrics.contains("epoch"));
}

TEST(Evaluation, TestPredictWithSeveralLabelNames) {
  struct TwoLabels : RegressionModel {
    using RegressionModel::RegressionModel;
    ModelOutput forward(const Batch& inputs, const ForwardOptions&) override {
      const auto y = inputs["input_x"] * a + b;
      return {
          {"loss", torch::mse_loss(y, inputs["labels"]) + torch::mse_loss(y, inputs["labels_2"])},
          {"logits", y},
          {"again", y}};
    }
    std::vector<std::string> label_names() const override { return {"labels", "labels_2"}; }
  };
  Box box;
  const RegressionData data(64, {"labels", "labels_2"});
  auto options = regression(box);
  options.model = std::make_shared<TwoLabels>(1.5, 2.5);
  const auto found = Trainer(std::move(options)).predict(data.rows);
  ASSERT_EQ(found.label_parts.size(), 2U);
  EXPECT_TRUE(torch::equal(found.label_parts[0], data.ys[0]));
  EXPECT_TRUE(torch::equal(found.label_parts[1], data.ys[1]));
}

TEST(Evaluation, TestTrainAndPredictLossParity) {
  Box box;
  auto options = regression(
      box, {.per_device_train_batch_size = 64, .max_steps = 1, .learning_rate = 0.0}, 1.5, 2.5);
  Trainer trainer(std::move(options));
  EXPECT_NEAR(trainer.train().training_loss,
              trainer.predict(RegressionData().rows).metrics.at("test_loss"), 1e-6);
}

TEST(Evaluation, TestEvaluateWithBatchEvalMetrics) {
  const auto batched = [] {
    struct Counts {
      double right = 0, all = 0;
      int calls = 0;
    };
    return [counts = std::make_shared<Counts>()](const EvalPrediction& p,
                                                 bool compute_result) -> Metrics {
      counts->right += (p.predictions - p.label_ids).abs().le(0.25).sum().item<double>();
      counts->all += double(p.predictions.size(0));
      counts->calls += 1;
      if (!compute_result) return {};
      const Metrics result{{"accuracy", counts->right / counts->all},
                           {"calls", double(counts->calls)}};
      *counts = {};
      return result;
    };
  };
  for (const int64_t rows : {64, 66}) {
    Box box;
    auto options = evaluating(box, rows, {.batch_eval_metrics = true});
    options.compute_metrics = batched();
    Trainer trainer(std::move(options));
    const auto metrics = trainer.evaluate();
    EXPECT_NEAR(metrics.at("eval_accuracy"), ClosedForm(RegressionData(rows)).accuracy, 1e-9);
    EXPECT_EQ(metrics.at("eval_calls"), (rows + 7) / 8);
    const auto predicted =
        trainer.predict(RegressionData(rows).rows);  // TestPredictWithBatchEvalMetrics
    EXPECT_EQ(predicted.predictions.size(0), rows) << "predict keeps the predictions";
    EXPECT_NEAR(predicted.metrics.at("test_accuracy"), metrics.at("eval_accuracy"), 1e-9);
  }
  Box box;
  auto options = evaluating(box, 64, {.batch_eval_metrics = true});
  EXPECT_EQ(error_of([&] { Trainer trainer(std::move(options)); }).message(),
            "batch_eval_metrics needs a compute_metrics that takes (EvalPrediction, bool "
            "compute_result)");
}

TEST(Evaluation, TestDictEvalDatasets) {
  Box box;
  auto options = regression(
      box, {.max_steps = 2, .eval_strategy = "steps", .eval_steps = 2, .save_strategy = "no"});
  options.eval_dataset =
      EvalDatasets{{"data1", RegressionData(64).rows}, {"data2", RegressionData(32).rows}};
  Trainer trainer(std::move(options));
  trainer.train();
  EXPECT_TRUE(trainer.state().log_history.at(0).contains("eval_data1_loss"));
  EXPECT_TRUE(trainer.state().log_history.at(1).contains("eval_data2_loss"));
  const auto metrics = trainer.evaluate();
  EXPECT_TRUE(metrics.contains("eval_data1_loss") && metrics.contains("eval_data2_loss"));
}

TEST(Evaluation, TestIncludeForMetrics) {
  Box box;
  auto options = regression(box, {.include_for_metrics = {"inputs", "loss"}}, 1.5, 2.5);
  options.compute_metrics = [](const EvalPrediction& p) -> Metrics {
    return {{"input_rows", double(p.inputs.size(0))},
            {"mean_loss", p.losses.mean().item<double>()}};
  };
  const auto metrics = Trainer(std::move(options)).evaluate();
  EXPECT_EQ(metrics.at("eval_input_rows"), 64);
  EXPECT_NEAR(metrics.at("eval_mean_loss"), metrics.at("eval_loss"), 1e-6);
}

TEST(Evaluation, InputsAndLossesOfEveryBatchWhenTheyAreNotToBeJoined) {
  Box box;
  auto options = regression(box,
                            {.per_device_eval_batch_size = 24,
                             .eval_do_concat_batches = false,
                             .include_for_metrics = {"inputs", "loss"}},
                            1.5, 2.5);
  options.compute_metrics = [](const EvalPrediction& p) -> Metrics {
    return {{"joined", double(p.inputs.defined() || p.losses.defined())},
            {"batches", double(p.input_batches.size() + p.loss_batches.size())},
            {"last_rows", double(p.input_batches.back().size(0))},
            {"last_losses", double(p.loss_batches.back().size(0))}};
  };
  const auto metrics = Trainer(std::move(options)).evaluate();
  EXPECT_EQ(metrics.at("eval_joined"), 0);
  EXPECT_EQ(metrics.at("eval_batches"), 6);
  EXPECT_EQ(metrics.at("eval_last_rows"), 16);
  EXPECT_EQ(metrics.at("eval_last_losses"), 16);
}

TEST(Evaluation, TestFullEvalInHalfPrecision) {
  for (const bool bf16 : {false, true}) {
    Box box;
    auto options = evaluating(box, 64, {.bf16_full_eval = bf16, .fp16_full_eval = !bf16});
    options.eval_dataset = RegressionData(64).rows->map([bf16](const Example& row) {
      const auto dtype = bf16 ? torch::kBFloat16 : torch::kHalf;
      return Example{{"input_x", row.at("input_x").tensor().to(dtype)},
                     {"labels", row.at("labels").tensor().to(dtype)}};
    });
    Trainer trainer(std::move(options));
    EXPECT_NEAR(trainer.evaluate().at("eval_loss"), 0.379, 0.02);
    EXPECT_EQ(trainer.model().state_dict()["a"].scalar_type(),
              bf16 ? torch::kBFloat16 : torch::kHalf);
  }
}

// Rows of one batch share their length; batches differ.
struct Copies : Model {
  ModelOutput forward(const Batch& inputs, const ForwardOptions&) override {
    return {{"loss", (inputs["x"] * weight).mean()}, {"out1", inputs["x"]}, {"out2", inputs["x"]}};
  }
  torch::Tensor weight = register_parameter("weight", torch::ones({}));
};

TEST(Evaluation, TestDynamicShapes) {
  for (const auto& accumulate : {std::optional<int64_t>(), std::optional<int64_t>(2)}) {
    Box box;
    const std::vector<int64_t> lengths = {5, 2, 9, 4};
    std::vector<Example> rows;
    for (const auto length : lengths)
      for (int i = 0; i < 4; ++i)
        rows.push_back({{"x", torch::full({length}, double(length))},
                        {"labels", torch::full({length}, double(i))}});
    Trainer trainer({.model = std::make_shared<Copies>(),
                     .args = {.output_dir = box.dir(),
                              .disable_tqdm = true,
                              .per_device_eval_batch_size = 4,
                              .eval_accumulation_steps = accumulate,
                              .use_cpu = !on_gpu()}});
    const auto found = trainer.predict(from_examples(rows));
    ASSERT_EQ(found.prediction_parts.size(), 2U);
    for (const auto& part : {found.prediction_parts[0], found.prediction_parts[1], found.label_ids})
      EXPECT_EQ(part.sizes(), (torch::IntArrayRef{16, 9}));
    for (int64_t i = 0; i < 16; ++i) {
      const auto length = lengths[size_t(i / 4)];
      EXPECT_TRUE(
          found.prediction_parts[0][i].slice(0, 0, length).eq(double(length)).all().item<bool>());
      EXPECT_TRUE(found.prediction_parts[0][i].slice(0, length).eq(-100).all().item<bool>());
      EXPECT_TRUE(found.label_ids[i].slice(0, length).eq(-100).all().item<bool>());
    }
    auto apart = TrainerOptions{.model = std::make_shared<Copies>(),
                                .args = {.output_dir = box.dir(),
                                         .disable_tqdm = true,
                                         .per_device_eval_batch_size = 4,
                                         .eval_do_concat_batches = false,
                                         .use_cpu = !on_gpu()}};
    std::vector<int64_t> widths;
    apart.compute_metrics = [&](const EvalPrediction& p) -> Metrics {
      for (const auto& batch : p.prediction_batches) widths.push_back(batch.at(0).size(1));
      return {};
    };
    Trainer(std::move(apart)).evaluate(EvalDatasets(from_examples(rows)));
    EXPECT_EQ(widths, lengths) << "eval_do_concat_batches=false keeps the batches";
  }
}

TEST(Evaluation, TestPadAndConcatenateWith1d) {
  EXPECT_TRUE(torch::equal(pad_and_concatenate(torch::tensor(1.0), torch::tensor(2.0)),
                           torch::tensor({1.0, 2.0})));
  const auto joined = pad_and_concatenate(torch::ones({1, 2}), torch::ones({1, 3}));
  EXPECT_TRUE(torch::equal(joined, torch::tensor({{1.F, 1.F, -100.F}, {1.F, 1.F, 1.F}})));
}

TEST(Evaluation, TestLabelSmoothing) {
  torch::manual_seed(0);
  const auto logits = torch::randn({4, 5, 12});
  auto labels = torch::randint(0, 12, {4, 5}, torch::kLong);
  const auto log_probs = logits.log_softmax(-1);
  const auto expected = 0.9 * torch::cross_entropy_loss(logits.view({20, 12}), labels.view(20)) -
                        0.1 * log_probs.mean();
  const LabelSmoother smoother(0.1);
  EXPECT_NEAR(smoother({{"logits", logits}}, labels, false, std::nullopt).item<double>(),
              expected.item<double>(), 1e-6);
  for (const auto& [row, column] : {std::pair(0, 1), std::pair(2, 1), std::pair(2, 3)})
    labels[row][column] = -100;
  const auto mask = labels.eq(-100).unsqueeze(-1);
  const auto partly = 0.9 * torch::cross_entropy_loss(logits.view({20, 12}), labels.view(20)) -
                      0.1 * log_probs.masked_fill(mask, 0).sum() / (12 * 17);
  EXPECT_NEAR(smoother({{"logits", logits}}, labels, false, std::nullopt).item<double>(),
              partly.item<double>(), 1e-6);
}

TEST(Evaluation, TestLabelSmoothingMultiLabelIncompatibility) {
  struct MultiLabel : RegressionModel {
    json config() const override { return {{"problem_type", "multi_label_classification"}}; }
  };
  Box box;
  auto options = regression(box, {.label_smoothing_factor = 0.1});
  options.model = std::make_shared<MultiLabel>();
  Trainer trainer(std::move(options));
  EXPECT_EQ(box->heard("Label smoothing cannot be used with multi-label classification"), 1);
  EXPECT_NO_THROW(trainer.evaluate());
}

TEST(Evaluation, TestTrainAndEvalDataloaders) {
  Box box;
  const auto make = [&](bool drop_last) {
    return std::make_unique<LoaderTrainer>(regression(box,
                                                      {.per_device_train_batch_size = 16,
                                                       .per_device_eval_batch_size = 32,
                                                       .dataloader_drop_last = drop_last},
                                                      0, 0, 66, 74));
  };
  auto trainer = make(false);
  EXPECT_EQ(trainer->get_train_dataloader().size(), 5);
  EXPECT_EQ(trainer->get_train_dataloader().options()->batch_size, 16);
  EXPECT_EQ(trainer->get_eval_dataloader(RegressionData(74).rows).size(), 3);
  EXPECT_EQ(trainer->get_eval_dataloader(RegressionData(128).rows).size(), 4);
  trainer = make(true);
  EXPECT_EQ(trainer->get_train_dataloader().size(), 4);
  EXPECT_EQ(trainer->get_eval_dataloader(RegressionData(74).rows).size(), 2);
}

/// Reads the regression rows front to back, endlessly or once.
struct Stream : IterableDataset {
  Stream(int64_t rows, bool endless) : rows(rows), endless(endless), data(rows) {}
  std::optional<Example> next() override {
    if (!endless && at == rows) return std::nullopt;
    const auto i = at++ % rows;
    return Example{{"input_x", data.x[i]}, {"labels", data.ys[0][i]}, {"extra", int64_t{1}}};
  }
  void reset(int64_t) override { at = 0; }
  int64_t rows, at = 0;
  bool endless;
  RegressionData data;
};

TEST(Evaluation, TestTrainingIterableDataset) {
  Box box;
  auto options = regression(box, {.max_steps = 4});
  options.train_dataset = std::make_shared<Stream>(64, true);
  Trainer trainer(std::move(options));
  EXPECT_EQ(trainer.train().global_step, 4);
  auto short_one = regression(box, {.max_steps = 100, .save_strategy = "no"});
  short_one.train_dataset = std::make_shared<Stream>(64, false);
  EXPECT_EQ(Trainer(std::move(short_one)).train().global_step, 100)
      << "it is read again from the start";
  auto unbounded = regression(box);
  unbounded.train_dataset = std::make_shared<Stream>(64, true);
  EXPECT_NE(error_of([&] { Trainer bad(std::move(unbounded)); })
                .message()
                .find("has no length and max_steps is -1"),
            std::string::npos);
}

TEST(Evaluation, AStreamThatKnowsItsLengthIsTrainedByEpochs) {
  struct Sized : Stream {
    Sized(int64_t rows, int64_t said) : Stream(rows, false), said(said) {}
    std::optional<int64_t> size() const override { return said; }
    int64_t said;
  };
  struct Case {
    int64_t rows, said, steps;
    double epoch;
  };
  for (const auto& c : {Case{64, 64, 16, 2.0}, Case{40, 64, 10, 1.625},
                        Case{100, 64, 16, 2.0}}) {  // the truth, too few, too many; as in Python
    Box box;
    auto options = regression(
        box, {.per_device_train_batch_size = 8, .num_train_epochs = 2, .save_strategy = "no"});
    options.train_dataset = std::make_shared<Sized>(c.rows, c.said);
    Trainer trainer(std::move(options));
    EXPECT_EQ(trainer.train().global_step, c.steps) << c.rows << " rows";
    EXPECT_EQ(trainer.state().max_steps, 16);
    EXPECT_DOUBLE_EQ(trainer.state().epoch, c.epoch);
  }
}

TEST(Evaluation, TestTrainingStopsWithoutASingleRow) {
  Box box;
  auto options = regression(box, {.max_steps = 4, .save_strategy = "no"});
  options.train_dataset = std::make_shared<Stream>(0, false);
  EXPECT_EQ(Trainer(std::move(options)).train().global_step, 0);
  EXPECT_EQ(box->heard("There is no row in this pass over the data: training stops at step 0."), 1);
}

TEST(Evaluation, TestEvaluationIterableDataset) {
  for (const int64_t rows : {64, 66}) {
    Box box;
    auto options = evaluating(box, 64);
    options.eval_dataset = std::make_shared<Stream>(rows, false);
    Trainer trainer(std::move(options));
    const auto metrics = trainer.evaluate();
    const ClosedForm expected{RegressionData(rows)};
    EXPECT_NEAR(metrics.at("eval_loss"), expected.loss, 1e-6);
    EXPECT_NEAR(metrics.at("eval_accuracy"), expected.accuracy, 1e-6);
    const auto found =
        trainer.predict(std::make_shared<Stream>(rows, false));  // TestPredictIterableDataset
    EXPECT_TRUE(torch::allclose(found.predictions, 1.5 * RegressionData(rows).x + 2.5));
  }
}

TEST(Evaluation, AStreamKeepsItsLastBatchWithDropLast) {
  Box box;
  Trainer trainer(regression(box, {.per_device_eval_batch_size = 8, .dataloader_drop_last = true}));
  EXPECT_EQ(trainer.predict(std::make_shared<Stream>(10, false)).predictions.size(0), 10);
  EXPECT_EQ(trainer.predict(RegressionData(10).rows).predictions.size(0), 8);
}

TEST(Evaluation, TestRemoveColumns) {
  Box box;
  const RegressionData data;
  auto options = regression(box, {.max_steps = 2, .log_level = "info", .save_strategy = "no"});
  options.train_dataset =
      from_tensors({{"input_x", data.x}, {"labels", data.ys[0]}, {"col3", data.x}});
  Trainer(std::move(options)).train();
  EXPECT_EQ(box->heard("have been ignored: col3."), 1);
  auto unusable = regression(box);
  unusable.train_dataset = from_tensors({{"words", data.x}});
  const auto error = error_of([&] { Trainer(std::move(unusable)).train(); });
  EXPECT_EQ(error.id(), "G-TRAIN-14");
  EXPECT_EQ(error.message(),
            "no column of the Training set is one the model takes: it has words; the model takes "
            "input_x, label, label_ids, labels");
}

TEST(Evaluation, TestGroupByLengthEvalSamplerIsDeterministic) {
  Box box;
  std::vector<Example> rows;
  for (int64_t i = 0; i < 40; ++i)
    rows.push_back({{"input_ids", Value::Ints(size_t(1 + i * 7 % 13), i)}});
  auto options = regression(
      box, {.remove_unused_columns = false, .train_sampling_strategy = "group_by_length"});
  options.data_collator = [](std::vector<Example> batch) {
    std::vector<int64_t> first;
    for (const auto& row : batch) first.push_back(row.at("input_ids").ints().front());
    return Batch{{"first", torch::tensor(first)}};
  };
  LoaderTrainer trainer(std::move(options));
  const auto order = [&] {
    std::vector<int64_t> found;
    const auto loader = trainer.get_eval_dataloader(from_examples(rows));
    auto batches = loader.iterate(0);
    while (const auto batch = batches.next())
      for (int64_t i = 0; i < batch->rows(); ++i)
        found.push_back((*batch)["first"][i].item<int64_t>());
    return found;
  };
  EXPECT_EQ(order(), order());
}

TEST(Optimizers, TestCustomOptimizer) {
  Box box;
  auto options = regression(box, {.max_steps = 3, .logging_steps = 1, .save_strategy = "no"});
  const auto sgd = std::make_shared<SGD>(options.model->parameters(), SGDOptions{.lr = 1.0});
  const auto schedule = std::shared_ptr<LRScheduler>(get_scheduler("constant", *sgd, 0, 0));
  options.optimizers = {sgd, schedule};
  Trainer trainer(std::move(options));
  trainer.train();
  EXPECT_EQ(trainer.optimizer(), sgd);
  EXPECT_EQ(trainer.lr_scheduler(), schedule);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(trainer.state().log_history.at(size_t(i)).at("learning_rate"), 1.0);
}

TEST(Optimizers, GradientsOfParametersItDoesNotHaveCountInTheNormAndAreDropped) {
  const auto norms = [](bool all) {
    Box box;
    auto options = regression(box, {.max_steps = 3, .logging_steps = 1, .save_strategy = "no"});
    auto parameters = options.model->parameters();
    if (!all) parameters.pop_back();
    options.optimizers.optimizer = std::make_shared<SGD>(parameters, SGDOptions{.lr = 0.0});
    Trainer trainer(std::move(options));
    trainer.train();
    std::vector<double> found;
    for (int i = 0; i < 3; ++i)
      found.push_back(trainer.state().log_history.at(size_t(i)).at("grad_norm"));
    return found;
  };
  EXPECT_EQ(norms(false), norms(true));
}

TEST(Optimizers, TestOptimizerFactory) {
  Box box;
  auto options = regression(box, {.max_steps = 1, .learning_rate = 0.25});
  options.optimizer_factory = [](std::vector<ParamGroupInit> groups,
                                 const TrainingArguments& args) -> std::shared_ptr<Optimizer> {
    EXPECT_EQ(groups.size(), 2U);
    return std::make_shared<SGD>(std::move(groups), SGDOptions{.lr = args.learning_rate});
  };
  Trainer trainer(std::move(options));
  trainer.train();
  EXPECT_EQ(trainer.optimizer()->name(), "sgd");
}

TEST(Optimizers, TestAdafactorLrNone) {
  Box box;
  auto options = regression(box, {.max_steps = 4, .logging_steps = 1, .save_strategy = "no"});
  const auto adafactor = std::make_shared<Adafactor>(
      options.model->parameters(),
      AdafactorOptions{
          .lr = std::nullopt, .scale_parameter = true, .relative_step = true, .warmup_init = true});
  options.optimizers = {adafactor, std::make_shared<AdafactorSchedule>(*adafactor)};
  Trainer trainer(std::move(options));
  trainer.train();
  EXPECT_NE(weights(trainer).first, 0.0F);
  EXPECT_GT(trainer.lr_scheduler()->last_lr().front(), 0);
}

TEST(Optimizers, TestGetLearningRates) {
  Box box;
  LoaderTrainer trainer(regression(box));
  const auto error = error_of([&] { trainer.get_learning_rates(); });
  EXPECT_EQ(error.id(), "G-TRAIN-5");
  EXPECT_EQ(error.message(), "the optimizer does not exist before training");
  trainer.create_optimizer();
  EXPECT_EQ(trainer.get_learning_rates(), (std::vector<double>{5e-5, 5e-5}));
  EXPECT_EQ(trainer.optimizer()->param_groups().size(), 2U);
}

TEST(Optimizers, TestLrSchedulerKwargs) {
  Box box;
  LoaderTrainer trainer(regression(box, {.learning_rate = 0.1,
                                         .lr_scheduler_type = "polynomial",
                                         .lr_scheduler_kwargs = {{"power", 5.0}, {"lr_end", 1e-5}},
                                         .warmup_steps = 0}));
  trainer.create_optimizer_and_scheduler(10);
  for (int step = 0; step < 10; ++step) {
    EXPECT_NEAR(trainer.get_learning_rates()[0], (0.1 - 1e-5) * std::pow(1 - step / 10.0, 5) + 1e-5,
                1e-12);
    trainer.lr_scheduler()->step();
  }
}

TEST(Optimizers, TestReduceLrOnPlateau) {
  struct Scripted : Trainer {
    using Trainer::Trainer;
    EvalLoopOutput evaluation_loop(const DataLoader& loader, const std::string& description,
                                   std::optional<bool> loss_only, std::optional<Names> ignored,
                                   const std::string& prefix) override {
      auto output =
          Trainer::evaluation_loop(loader, description, loss_only, std::move(ignored), prefix);
      output.metrics["eval_loss"] = losses.at(next++);
      return output;
    }
    std::vector<double> losses = {1.0, 1.5, 1.6, 1.7, 1.8, 0.5};  // better only at the last
    size_t next = 0;
  };
  Box box;
  Scripted trainer(
      regression(box, {.num_train_epochs = 6,
                       .learning_rate = 0.2,
                       .lr_scheduler_type = "reduce_lr_on_plateau",
                       .lr_scheduler_kwargs = {{"factor", 0.5}, {"patience", 1}, {"cooldown", 0}},
                       .logging_strategy = "epoch",
                       .eval_strategy = "epoch",
                       .save_strategy = "no",
                       .metric_for_best_model = "eval_loss"}));
  trainer.train();
  std::vector<double> rates;
  for (const auto& entry : trainer.state().log_history)
    if (entry.contains("learning_rate")) rates.push_back(entry["learning_rate"]);
  EXPECT_EQ(rates, (std::vector<double>{0.2, 0.2, 0.2, 0.1, 0.1, 0.05}))
      << "halved after more than one bad evaluation";
}

}  // namespace
}  // namespace gradus::testing
