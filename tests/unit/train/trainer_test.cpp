// Training: peer-tests.md 9.1. Each test has the name of the peer's.
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/data/collators.h>
#include <gradus/data/tokenizer_like.h>
#include <gradus/models/auto_model.h>
#include <gradus/optim/optimizer.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "regression.h"

namespace gradus::testing {
namespace {

std::pair<float, float> golden_weights() {
  const auto steps =
      read_json(fs::path(GRADUS_SOURCE_DIR) / "tests/golden/reg_default.json").at("steps");
  const auto last = steps.back().at("params_after");
  return {last.at("a").get<float>(), last.at("b").get<float>()};
}

void expect_near(std::pair<float, float> got, std::pair<float, float> expected,
                 double tolerance = 1e-5) {
  EXPECT_NEAR(got.first, expected.first, tolerance);
  EXPECT_NEAR(got.second, expected.second, tolerance);
}

/// Opens what the tests look at.
struct OpenTrainer : Trainer {
  using Trainer::get_num_items_in_batch;
  using Trainer::Trainer;
};

json tiny_gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 32}, {"n_positions", 16},
          {"n_embd", 16},         {"n_layer", 2},     {"n_head", 2}};
}

std::shared_ptr<Dataset> token_rows(int64_t rows) {
  const auto ids = torch::arange(rows * 8).reshape({rows, 8}).remainder(31);
  return from_tensors({{"input_ids", ids}, {"labels", ids}});
}

TEST(Trainer, TheFixtureHasThePeersNumbers) {
  const RegressionData data;
  const auto golden =
      read_json(fs::path(GRADUS_SOURCE_DIR) / "tests/golden/reg_default.json").at("data");
  for (int64_t i = 0; i < 64; ++i) {
    EXPECT_FLOAT_EQ(data.x[i].item<float>(), golden["x"][size_t(i)].get<float>());
    EXPECT_FLOAT_EQ(data.ys[0][i].item<float>(), golden["y"][size_t(i)].get<float>());
  }
}

TEST(Trainer, TestMixedFp16) {
  Box box;
  Trainer trainer(regression(box, {.learning_rate = 0.1, .fp16 = true, .logging_steps = 1}));
  trainer.train();
  expect_near(weights(trainer), golden_weights());
  EXPECT_LT(trainer.state().log_history.front().at("grad_norm").get<double>(), 100);
}

TEST(Trainer, TestMixedBf16) {
  Box box;
  Trainer trainer(regression(box, {.learning_rate = 0.1, .bf16 = true}));
  trainer.train();
  expect_near(weights(trainer), golden_weights());
}

TEST(Trainer, TestNumItemsInBatchCausalLm) {
  struct Lm : RegressionModel {
    bool accepts_loss_kwargs() const override { return true; }
    bool shifts_labels() const override { return shifts; }
    bool shifts = true;
  };
  Box box;
  auto model = std::make_shared<Lm>();
  auto options = regression(box);
  options.model = model;
  OpenTrainer trainer(std::move(options));
  const auto labels = torch::tensor({{1, 2, 3, 4, 5, -100, -100, -100}, {1, 2, 3, 4, 5, 6, 7, 8}});
  const auto count = [&](const std::vector<Batch>& window) {
    return trainer.get_num_items_in_batch(window)->item<int64_t>();
  };
  EXPECT_EQ(count({Batch{{"labels", labels}}}), 11);
  EXPECT_EQ(
      count({Batch{{"labels", labels.slice(0, 0, 1)}}, Batch{{"labels", labels.slice(0, 1, 2)}}}),
      11)
      << "summed over the window";
  const auto shifted =
      torch::tensor({{2, 3, 4, -100, -100, -100, -100, -100}, {2, 3, 4, 5, 6, -100, -100, -100}});
  EXPECT_EQ(count({Batch{{"labels", labels}, {"shift_labels", shifted}}}), 8);
  model->shifts = false;  // TestNumItemsInBatchNonCausalLm, …EncoderDecoder
  EXPECT_EQ(count({Batch{{"labels", labels}}}), 13);
}

TEST(Trainer, RunModelOutsideAStepHasNoNumItemsInBatch) {
  struct Counting : RegressionModel {
    bool accepts_loss_kwargs() const override { return true; }
    ModelOutput forward(const Batch& inputs, const ForwardOptions& options) override {
      (is_training() ? in_training : elsewhere) += options.num_items_in_batch.has_value();
      return RegressionModel::forward(inputs, options);
    }
    int in_training = 0, elsewhere = 0;
  };
  struct Direct : Trainer {
    using Trainer::Trainer;
    PredictionStep prediction_step(Model& model, Batch inputs, bool, const Names&) override {
      inputs = prepare_inputs(std::move(inputs));
      return {.loss = run_model(model, inputs, false)["loss"], .logits = {}, .labels = {}};
    }
  };
  Box box;
  auto model = std::make_shared<Counting>();
  auto options = regression(box, {.max_steps = 3, .eval_strategy = "steps", .eval_steps = 1});
  options.model = model;
  Direct(std::move(options)).train();
  EXPECT_EQ(model->in_training, 3);
  EXPECT_EQ(model->elsewhere, 0) << "left over from the training step";
}

TEST(Trainer, TestNumItemsInBatchIsCountedOnlyForThoseWhoTakeIt) {
  Box box;
  OpenTrainer plain(regression(box));
  EXPECT_FALSE(plain.get_num_items_in_batch({Batch{{"labels", torch::ones({4})}}}));
  auto options = regression(box);
  options.compute_loss_func = [](const ModelOutput& out, const torch::Tensor&,
                                 const std::optional<torch::Tensor>&) { return out[0].sum(); };
  OpenTrainer counting(std::move(options));
  EXPECT_EQ(counting.get_num_items_in_batch({Batch{{"labels", torch::ones({4})}}})->item<int64_t>(),
            4);
  EXPECT_FALSE(counting.get_num_items_in_batch({Batch{{"input_x", torch::ones({4})}}}));
}

TEST(Trainer, TestComputeLossFuncDividesByTheWindow) {
  // A sum divided by num_items_in_batch is the mean over the window: the same run as one batch of
  // the window's size.
  Box box;
  auto whole = regression(
      box, {.output_dir = box.dir("a"), .per_device_train_batch_size = 16, .learning_rate = 0.1});
  auto split = regression(box, {.output_dir = box.dir("b"),
                                .per_device_train_batch_size = 4,
                                .learning_rate = 0.1,
                                .gradient_accumulation_steps = 4});
  split.compute_loss_func = [](const ModelOutput& out, const torch::Tensor& labels,
                               const std::optional<torch::Tensor>& items) {
    return (out["logits"] - labels).pow(2).sum() / *items;
  };
  Trainer one(std::move(whole)), other(std::move(split));
  const auto expected = one.train(), got = other.train();
  expect_near(weights(other), weights(one));
  EXPECT_NEAR(got.training_loss, expected.training_loss, 1e-5);
}

TEST(Trainer, TestGradientAccumulation) {
  Box box;
  Trainer one(regression(
      box, {.output_dir = box.dir("a"), .per_device_train_batch_size = 8, .learning_rate = 0.1}));
  Trainer other(regression(box, {.output_dir = box.dir("b"),
                                 .per_device_train_batch_size = 4,
                                 .learning_rate = 0.1,
                                 .gradient_accumulation_steps = 2}));
  one.train();
  other.train();
  expect_near(weights(other), weights(one));
}

TEST(Trainer, TestGradientCheckpointing) {
  Box box;
  std::map<std::string, torch::Tensor> ends[2];
  for (const bool recompute : {false, true}) {
    torch::manual_seed(1);
    auto config = tiny_gpt2();
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config[key] = 0.0;
    std::shared_ptr<Model> model = AutoModelForCausalLM::from_config(config);
    std::map<std::string, torch::Tensor> before;
    for (const auto& item : model->state_dict())
      before[item.key()] = item.value().to(test_device(), /*non_blocking=*/false, /*copy=*/true);
    TrainingArguments args{.output_dir = box.dir(),
                           .max_steps = 3,
                           .learning_rate = 0.1,
                           .gradient_checkpointing = recompute,
                           .disable_tqdm = true,
                           .save_strategy = "no",
                           .use_cpu = !on_gpu()};
    Trainer({.model = model, .args = args, .train_dataset = token_rows(16)}).train();
    for (const auto& item : model->state_dict()) {
      ends[recompute][item.key()] = item.value().detach().clone();
      EXPECT_GT((item.value() - before[item.key()]).abs().max().item<double>(), 1e-4) << item.key();
    }
  }
  for (const auto& [name, value] : ends[0]) {
    auto other = ends[1].at(name);
    if (on_gpu() && name.ends_with("c_attn.bias"))
      other.chunk(3)[1].copy_(
          value.chunk(3)[1]);  // a key's bias changes nothing: its gradient is rounding alone
    EXPECT_TRUE(torch::allclose(value, other, 1e-4, 1e-5)) << name;
  }
}

TEST(Trainer, ACallbackBeforeTheOptimizersStepSeesClippedGradients) {
  for (const std::string kind : {"float32", "bf16", "fp16"}) {
    std::map<bool, std::vector<json>> history;
    for (const bool looks : {false, true}) {
      Box box;
      torch::manual_seed(1);
      TrainingArguments args{.output_dir = box.dir(),
                             .max_steps = 12,
                             .max_grad_norm = 0.125,
                             .logging_steps = 1,
                             .disable_tqdm = true,
                             .save_strategy = "no",
                             .use_cpu = !on_gpu()};
      args.bf16 = kind == "bf16";
      args.fp16 = kind == "fp16";
      args.full_determinism = true;
      Trainer trainer({.model = AutoModelForCausalLM::from_config(tiny_gpt2()),
                       .args = args,
                       .train_dataset = token_rows(96)});
      std::vector<double> norms;
      if (looks)
        trainer.on(Event::pre_optimizer_step, [&](const CallbackContext& at, TrainerControl&) {
          double squares = 0;
          for (const auto& holder : at.optimizer->gradient_holders())
            squares += holder.grad().to(torch::kDouble).square().sum().item<double>();
          norms.push_back(std::sqrt(squares));
        });
      trainer.train();
      history[looks] = timeless(trainer.state().log_history);
      if (!looks) continue;
      ASSERT_EQ(norms.size(), 12U);
      const auto clipped = std::count_if(norms.begin(), norms.end(),
                                         [](double norm) { return std::abs(norm - 0.125) < 1e-3; });
      EXPECT_GE(clipped, kind == "fp16" ? 8 : 12)
          << kind << ": " << ::testing::PrintToString(norms);  // a step that fp16 skips has no norm
    }
    if (kind == "bf16" && on_gpu()) continue;  // what a callback sees there is rounded once more
    EXPECT_EQ(history[false], history[true]) << kind;
  }
}

TEST(Trainer, TestNeftune) {
  Box box;
  auto config = tiny_gpt2();
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config[key] = 0.0;
  std::shared_ptr<Model> model = AutoModelForCausalLM::from_config(config);
  Trainer trainer({.model = model,
                   .args = {.output_dir = box.dir(),
                            .max_steps = 2,
                            .neftune_noise_alpha = 5.0,
                            .disable_tqdm = true,
                            .save_strategy = "no",
                            .use_cpu = !on_gpu()},
                   .train_dataset = token_rows(16)});
  const Batch batch{{"input_ids", torch::tensor({{1, 2, 3}}).to(test_device())}};
  bool differs_in_training = false;
  trainer.on(Event::step_end, [&](const CallbackContext& at, TrainerControl&) {
    const torch::NoGradGuard no_grad;
    differs_in_training =
        !torch::equal(at.model->forward(batch).logits(), at.model->forward(batch).logits());
  });
  trainer.train();
  EXPECT_TRUE(differs_in_training);
  const torch::NoGradGuard no_grad;
  model->train();
  EXPECT_TRUE(torch::equal(model->forward(batch).logits(), model->forward(batch).logits()))
      << "the noise is off after train()";
}

TEST(Trainer, TestLoggingInfNanFilter) {
  const auto losses = [](bool filter) {
    Box box;
    Trainer trainer(regression(box, {.learning_rate = 1e25,
                                     .logging_steps = 5,
                                     .logging_nan_inf_filter = filter,
                                     .save_strategy = "no"}));
    trainer.train();
    std::vector<double> found;
    for (const auto& entry : trainer.state().log_history)
      if (entry.contains("loss")) found.push_back(entry["loss"].get<double>());
    EXPECT_EQ(trainer.filtered_losses() > 0, filter);
    return found;
  };
  const auto finite = [](double value) { return std::isfinite(value); };
  const auto plain = losses(false), filtered = losses(true);
  EXPECT_FALSE(std::all_of(plain.begin(), plain.end(), finite));
  EXPECT_TRUE(std::all_of(filtered.begin(), filtered.end(), finite));
}

TEST(Trainer, TestLogLevel) {
  for (const auto& [level, said] : {std::pair("debug", 1), std::pair("error", 0)}) {
    Box box;
    Trainer trainer(regression(box, {.log_level = level, .save_strategy = "no"}));
    trainer.train();
    EXPECT_EQ(box->heard("Running training"), said) << level;
  }
}

TEST(Trainer, TestFlosExtraction) {
  Box box;
  std::shared_ptr<Model> model = AutoModelForCausalLM::from_config(tiny_gpt2());
  Trainer trainer({.model = model,
                   .args = {.output_dir = box.dir(),
                            .max_steps = 2,
                            .disable_tqdm = true,
                            .save_strategy = "no",
                            .use_cpu = !on_gpu()},
                   .train_dataset = token_rows(16)});
  const auto result = trainer.train();
  EXPECT_GT(trainer.state().total_flos, 0);
  EXPECT_EQ(result.metrics.at("total_flos"), trainer.state().total_flos);
  EXPECT_EQ(trainer.state().total_flos,
            2 * model->floating_point_ops({{"input_ids", torch::zeros({8, 8}, torch::kLong)}}));
}

TEST(Trainer, TestMemMetrics) {
  for (const bool skip : {true, false}) {
    Box box;
    Trainer trainer(regression(box, {.save_strategy = "no", .skip_memory_metrics = skip}));
    const auto trained = trainer.train().metrics;
    const auto evaluated = trainer.evaluate();
    const auto predicted = trainer.predict(RegressionData().rows).metrics;
    EXPECT_EQ(trained.contains("init_mem_cpu_alloc_delta"), !skip);
    EXPECT_EQ(trained.contains("train_mem_cpu_alloc_delta"), !skip);
    EXPECT_EQ(evaluated.contains("eval_mem_cpu_alloc_delta"), !skip);
    EXPECT_EQ(predicted.contains("test_mem_cpu_alloc_delta"), !skip);
  }
}

TEST(Trainer, MemoryIsMeasuredAfterATrainingThatFailed) {
  Box box;
  Trainer trainer(regression(box, {.save_strategy = "no", .skip_memory_metrics = false}));
  trainer.on(Event::step_end, [](const CallbackContext&, TrainerControl&) {
    throw std::runtime_error("a callback failed");
  });
  EXPECT_THROW(trainer.train(), std::runtime_error);
  EXPECT_TRUE(trainer.evaluate().contains("eval_mem_cpu_alloc_delta"));
}

TEST(Trainer, TestGetNumTrainableParameters) {
  struct Two : Model {
    ModelOutput forward(const Batch&, const ForwardOptions&) override { return {}; }
    torch::nn::Linear first = register_module("first", torch::nn::Linear(128, 64));
    torch::nn::Linear last = register_module("last", torch::nn::Linear(64, 32));
  };
  Box box;
  const auto model = std::make_shared<Two>();
  Trainer trainer({.model = model,
                   .args = {.output_dir = box.dir(), .disable_tqdm = true, .use_cpu = !on_gpu()}});
  EXPECT_EQ(trainer.num_trainable_parameters(), 128 * 64 + 64 + 64 * 32 + 32);
  for (auto& parameter : model->last->parameters()) parameter.requires_grad_(false);
  EXPECT_EQ(trainer.num_trainable_parameters(), 128 * 64 + 64);
}

TEST(Trainer, TestTrainingLoss) {
  Box box;
  Trainer every_eight(regression(box, {.output_dir = box.dir("a"), .logging_steps = 8}));
  const auto first = every_eight.train();
  double sum = 0;
  int count = 0;
  for (const auto& entry : every_eight.state().log_history)
    if (entry.contains("loss")) sum += entry["loss"].get<double>(), ++count;
  EXPECT_NEAR(sum / count, first.training_loss, 1e-4);
  Trainer every_five(regression(box, {.output_dir = box.dir("b"), .logging_steps = 5}));
  EXPECT_NEAR(every_five.train().training_loss, first.training_loss, 1e-4);
}

TEST(Trainer, TestNumberOfStepsInTraining) {
  Box box;
  EXPECT_EQ(Trainer(regression(box, {.output_dir = box.dir("a"), .learning_rate = 0.1}))
                .train()
                .global_step,
            24);
  EXPECT_EQ(
      Trainer(regression(
                  box, {.output_dir = box.dir("b"), .num_train_epochs = 1.5, .learning_rate = 0.1}))
          .train()
          .global_step,
      12);
  EXPECT_EQ(
      Trainer(regression(box, {.output_dir = box.dir("c"), .max_steps = 10, .learning_rate = 0.1}))
          .train()
          .global_step,
      10);
  EXPECT_EQ(Trainer(regression(box, {.output_dir = box.dir("d"),
                                     .num_train_epochs = 2,
                                     .gradient_accumulation_steps = 3}))
                .train()
                .global_step,
            6)
      << "8 batches: 3, 3, 2";
}

TEST(Trainer, TestReproducibleTraining) {
  Box box;
  const auto train = [&](int64_t seed) {
    Trainer trainer(regression(box, {.learning_rate = 0.1, .save_strategy = "no", .seed = seed}));
    trainer.train();
    return weights(trainer);
  };
  EXPECT_EQ(train(42), train(42));
  expect_near(train(42), golden_weights());
  EXPECT_EQ(train(314), train(314));
  EXPECT_NE(train(314), train(42));
}

TEST(Trainer, TestTrainerWithDatasets) {
  Box box;
  const RegressionData data;
  auto options = regression(box, {.learning_rate = 0.1});
  options.train_dataset =
      from_tensors({{"input_x", data.x}, {"label", data.ys[0]}, {"unused", torch::arange(64)}});
  options.eval_dataset = nullptr;
  Trainer trainer(std::move(options));
  trainer.train();
  expect_near(weights(trainer), golden_weights());
}

TEST(Trainer, TestModelInit) {
  Box box;
  auto options = regression(box, {.learning_rate = 0.1, .save_strategy = "no"});
  options.model = nullptr;
  options.model_init = [] { return std::make_shared<RegressionModel>(); };
  Trainer trainer(std::move(options));
  trainer.train();
  const auto first = weights(trainer);
  expect_near(first, golden_weights());
  trainer.train();
  EXPECT_EQ(weights(trainer), first) << "each train() starts from scratch";
  trainer.args().seed = 314;
  trainer.train();
  EXPECT_NE(weights(trainer), first);
}

TEST(Trainer, TestTrainTwiceGoesOn) {
  Box box;
  Trainer trainer(regression(box, {.learning_rate = 0.1, .save_strategy = "no"}));
  trainer.train();
  const auto first = weights(trainer);
  const auto optimizer = trainer.optimizer();
  const auto schedule = trainer.lr_scheduler();
  EXPECT_EQ(trainer.train().global_step, 24);
  EXPECT_EQ(trainer.optimizer(), optimizer) << "its moments are kept";
  EXPECT_NE(trainer.lr_scheduler(), schedule);
  EXPECT_GT(weights(trainer).first, first.first);
  EXPECT_EQ(trainer.state().log_history.size(), 1U) << "a state of its own";
}

TEST(Trainer, TestTrainerWorksWithoutModelConfig) {
  struct Words : Model {
    ModelOutput forward(const Batch& inputs, const ForwardOptions&) override {
      const auto logits = head->forward(table->forward(inputs["input_ids"]));
      return {{"loss", torch::cross_entropy_loss(logits.view({-1, 32}), inputs["labels"].view(-1))},
              {"logits", logits}};
    }
    torch::nn::Embedding table = register_module("table", torch::nn::Embedding(32, 8));
    torch::nn::Linear head = register_module("head", torch::nn::Linear(8, 32));
  };
  Box box;
  Trainer trainer({.model = std::make_shared<Words>(),
                   .args = {.output_dir = box.dir(),
                            .max_steps = 5,
                            .disable_tqdm = true,
                            .use_cpu = !on_gpu()},
                   .train_dataset = token_rows(64)});
  EXPECT_EQ(trainer.train().global_step, 5);
  EXPECT_FALSE(fs::exists(box.run() / "checkpoint-5/config.json"));
}

struct FewTokens : TokenizerLike {
  std::optional<int64_t> pad_token_id() const override { return 29; }
  std::optional<int64_t> mask_token_id() const override { return std::nullopt; }
  std::optional<int64_t> eos_token_id() const override { return 30; }
  int64_t full_vocab_size() const override { return 32; }
  std::vector<int64_t> all_special_ids() const override { return {29, 30}; }
  void save_pretrained(const fs::path& folder) const override {
    write_file_atomically(folder / "tokenizer.json", "{}");
  }
};

TEST(Trainer, TestSpecialTokenAlignment) {
  Box box;
  auto config = tiny_gpt2();
  config["eos_token_id"] = 7;
  config["bos_token_id"] = 8;
  const auto model = AutoModelForCausalLM::from_config(config);
  Trainer trainer({.model = model,
                   .args = {.output_dir = box.dir(),
                            .max_steps = 1,
                            .disable_tqdm = true,
                            .use_cpu = !on_gpu()},
                   .train_dataset = token_rows(8),
                   .processing_class = std::make_shared<FewTokens>()});
  EXPECT_EQ(model->config().at("eos_token_id"), 7);
  trainer.train();
  const auto saved = read_json(box.run() / "checkpoint-1/config.json");
  EXPECT_EQ(saved.at("eos_token_id"), 30);
  EXPECT_EQ(saved.at("pad_token_id"), 29);
  EXPECT_EQ(saved.at("bos_token_id"), 8) << "what the tokenizer does not have stays";
  EXPECT_EQ(read_json(box.run() / "checkpoint-1/generation_config.json").at("eos_token_id"),
            (json{30, 7}))
      << "the old end token still ends";
  EXPECT_EQ(box->heard("take the tokenizer's: eos_token_id: 30, pad_token_id: 29."), 1);
  EXPECT_TRUE(fs::exists(box.run() / "checkpoint-1/tokenizer.json"));  // TestTrainerSavesTokenizer
}

TEST(Trainer, WritesUseCacheIntoTheConfig) {
  Box box;
  for (const bool use : {true, false}) {
    auto config = tiny_gpt2();
    config["use_cache"] = true;
    Trainer trainer({.model = AutoModelForCausalLM::from_config(config),
                     .args = {.output_dir = box.dir(),
                              .use_cache = use,
                              .disable_tqdm = true,
                              .use_cpu = !on_gpu()}});
    trainer.save_model();
    EXPECT_EQ(read_json(box.run() / "config.json").at("use_cache"), use);
  }
}

TEST(Trainer, KeepsACollatorOfOnesOwnBesideATokenizer) {
  Box box;
  int calls = 0;
  const auto collator = [&calls](std::vector<Example> rows) {
    return ++calls, default_data_collator(std::move(rows));
  };
  Trainer trainer({.model = AutoModelForCausalLM::from_config(tiny_gpt2()),
                   .args = {.output_dir = box.dir(),
                            .max_steps = 1,
                            .disable_tqdm = true,
                            .use_cpu = !on_gpu()},
                   .data_collator = collator,
                   .train_dataset = token_rows(8),
                   .processing_class = std::make_shared<FewTokens>()});
  trainer.train();
  EXPECT_EQ(calls, 1);
}

TEST(Trainer, TestTrainingArgumentsAreLeftUntouched) {
  Box box;
  Trainer trainer(regression(box, {.max_steps = 2}));
  const auto before = trainer.args().to_dict();
  trainer.train();
  EXPECT_EQ(trainer.args().to_dict(), before);
}

TEST(Trainer, OptionsThatCannotGoTogetherAreRefused) {
  Box box;
  const auto refusal = [&](const std::function<void(TrainerOptions&)>& change) {
    auto options = regression(box);
    change(options);
    return error_of([&] { Trainer trainer(std::move(options)); });
  };
  EXPECT_EQ(refusal([](auto& o) { o.model = nullptr; }).message(),
            "Trainer needs a model: neither model nor model_init is set");
  EXPECT_EQ(refusal([](auto& o) {
              o.model_init = [] { return std::make_shared<RegressionModel>(); };
            }).message(),
            "Trainer received both model and model_init: expected exactly one");
  const auto nothing = refusal(
      [](auto& o) { o.model = nullptr, o.model_init = [] { return std::shared_ptr<Model>(); }; });
  EXPECT_EQ(nothing.message(), "model_init returned no model");
  const auto no_eval =
      refusal([](auto& o) { o.args.eval_strategy = "epoch", o.eval_dataset = nullptr; });
  EXPECT_EQ(no_eval.message(), "eval_strategy is 'epoch' but there is no eval_dataset");
  EXPECT_EQ(no_eval.kind(), ErrorKind::usage);
  EXPECT_EQ(error_of([&] {
              auto options = regression(box);
              options.train_dataset = nullptr;
              Trainer(std::move(options)).train();
            }).message(),
            "training needs a train_dataset: the Trainer has none");
}

TEST(Trainer, ALossMustBeAScalarAndThere) {
  Box box;
  auto options = regression(box);
  options.compute_loss_func = [](const ModelOutput& out, const torch::Tensor&,
                                 const std::optional<torch::Tensor>&) { return out["logits"]; };
  const auto wide = error_of([&] { Trainer(std::move(options)).train(); });
  EXPECT_EQ(wide.id(), "G-TRAIN-7");
  EXPECT_EQ(wide.message(), "compute_loss gave a tensor of shape [8]: expected a scalar");
  auto unlabelled = regression(box);
  unlabelled.train_dataset = from_tensors({{"input_x", torch::ones({8})}});
  const auto none = error_of([&] { Trainer(std::move(unlabelled)).train(); });
  EXPECT_EQ(none.id(), "G-TRAIN-6");
  EXPECT_EQ(none.message(),
            "the model returned no loss, only: logits. The inputs it received are: input_x");
}

}  // namespace
}  // namespace gradus::testing
