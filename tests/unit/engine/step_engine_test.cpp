#include <gradus/engine/step_engine.h>
#include <gradus/optim/adamw.h>
#include <gradus/optim/lomo.h>
#include <gradus/optim/sgd.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <limits>

#include "engine/recorded_batch.h"

namespace gradus {
namespace {

/// One weight of 1 and a loss whose gradient is the batch's "x".
struct OneWeight {
  torch::nn::Linear layer{torch::nn::LinearOptions(1, 1).bias(false)};
  StepEngine engine;

  explicit OneWeight(torch::ScalarType dtype = torch::kFloat) : engine(torch::kCPU, dtype) {
    const torch::NoGradGuard no_grad;
    layer->weight.fill_(1);
    engine.set_optimizer(std::make_shared<SGD>(layer->parameters(), SGDOptions{.lr = 0.5}));
    engine.set_schedule(std::make_shared<LambdaLR>(
        *engine.optimizer(), [](int64_t step) { return step == 0 ? 1.0 : 0.1; }));
    engine.precision().begin_run();
  }

  torch::Tensor micro_batch(float x, WindowPlace place = {}) {
    return engine.micro_batch({{"x", torch::full({1, 1}, x)}}, std::nullopt, place,
                              [&](const Batch& inputs, const auto&) {
                                const auto loss =
                                    layer(inputs["x"]).sum() / double(engine.window_size());
                                engine.backward(loss);
                                return loss.detach();
                              });
  }
  double weight() const { return layer->weight.item<double>(); }
};

TEST(StepEngine, AStepClipsUpdatesAndMovesTheSchedule) {
  OneWeight one;
  one.engine.begin(*one.layer, {.max_grad_norm = 2});
  EXPECT_FLOAT_EQ(one.micro_batch(8).item<float>(), 8);
  EXPECT_FLOAT_EQ(one.engine.clip().item<float>(), 8) << "the norm before clipping";
  EXPECT_NEAR(one.layer->weight.grad().item<double>(), 2, 1e-5);
  one.engine.step();
  EXPECT_NEAR(one.weight(), 0, 1e-5);
  EXPECT_EQ(one.engine.step_schedule(), 0.5) << "the rate the step had";
  EXPECT_DOUBLE_EQ(one.engine.optimizer()->param_groups()[0].lr, 0.05);
  one.engine.zero_grad();
  EXPECT_FALSE(one.layer->weight.grad().defined());
  EXPECT_EQ(one.engine.settle(), std::nullopt) << "the host knows everything on a CPU";
}

TEST(StepEngine, MicroBatchesOfAWindowAddUp) {
  OneWeight one;
  one.engine.begin(*one.layer, {});
  one.micro_batch(2, {.size = 2, .is_last = false});
  one.micro_batch(4, {.size = 2, .is_last = true});
  EXPECT_FLOAT_EQ(one.engine.clip().item<float>(), 3);
  EXPECT_EQ(one.engine.window_size(), 2);
  one.engine.end();
  EXPECT_EQ(one.engine.window_size(), 1);
}

TEST(StepEngine, SomeOptimizersTakeNoClipping) {
  OneWeight one;
  one.engine.set_optimizer(
      std::make_shared<Lomo>(one.layer->parameters(), LomoOptions{.lr = 0.125}));
  one.engine.begin(*one.layer, {.max_grad_norm = 2});
  one.micro_batch(8);
  EXPECT_FLOAT_EQ(one.engine.clip().item<float>(), 8);
  one.engine.step();
  EXPECT_EQ(one.weight(), 0);
}

TEST(StepEngine, AStepWithInfinitiesIsSkippedAndHoldsTheScheduleBack) {
  OneWeight one(torch::kHalf);
  one.engine.begin(*one.layer, {.max_grad_norm = 1});
  const double scale = one.engine.precision().scaler()->get_scale();
  one.micro_batch(1);
  one.layer->weight.mutable_grad().fill_(std::numeric_limits<float>::infinity());
  one.engine.clip();
  one.engine.step();
  one.engine.step_schedule();
  EXPECT_EQ(one.weight(), 1);
  EXPECT_EQ(one.engine.schedule()->steps_done(), 0);
  EXPECT_EQ(one.engine.precision().scaler()->get_scale(), scale / 2);
}

TEST(StepEngine, GradientsOfParametersThatTheOptimizerLacksCountAndAreDropped) {
  torch::nn::Linear trained(1, 1), other(1, 1);
  torch::nn::Sequential both(trained, other);
  StepEngine engine(torch::kCPU);
  engine.set_optimizer(std::make_shared<SGD>(trained->parameters(), SGDOptions{.lr = 0.1}));
  engine.begin(*both, {});
  for (const auto& parameter : both->parameters())
    parameter.mutable_grad() = torch::ones_like(parameter);
  EXPECT_FLOAT_EQ(engine.clip().item<float>(), 2) << "four gradients of 1";
  engine.zero_grad();
  for (const auto& parameter : both->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(StepEngine, AStepWithoutClippingSynchronizesToo) {
  struct Counting : Strategy {
    void sync_gradients(std::span<const torch::Tensor> parameters) override {
      ++calls;
      tensors = parameters.size();
    }
    int calls = 0;
    size_t tensors = 0;
  };
  const auto strategy = std::make_shared<Counting>();
  torch::nn::Linear layer(1, 1);
  StepEngine engine(torch::kCPU, torch::kFloat, strategy);
  engine.set_optimizer(std::make_shared<SGD>(layer->parameters(), SGDOptions{.lr = 0.1}));
  engine.begin(*layer, {.clipped = {layer->weight}});
  for (const bool clips : {false, true, true}) {
    engine.backward(layer(torch::ones({1, 1})).sum());
    if (clips) {
      EXPECT_FLOAT_EQ(engine.clip().item<float>(), 1) << "of the weight alone";
    }
    engine.step();
    EXPECT_FALSE(engine.step_was_skipped());
    engine.zero_grad();
  }
  EXPECT_EQ(strategy->calls, 3) << "once in a step";
  EXPECT_EQ(strategy->tensors, 2U) << "weight and bias";
}

TEST(StepEngine, MastersLiveFromBeginToEnd) {
  torch::nn::Linear layer(4, 2);
  StepEngine engine(torch::kCPU, torch::kBFloat16);
  engine.set_optimizer(std::make_shared<AdamW>(layer->parameters(), AdamWOptions{.lr = 1e-4}));
  engine.begin(*layer, {.master_weights = true});
  EXPECT_EQ(layer->weight.scalar_type(), torch::kBFloat16);
  {
    const auto float32 = engine.precision().shown();
    EXPECT_EQ(layer->weight.scalar_type(), torch::kFloat);
  }
  engine.end();
  EXPECT_EQ(layer->weight.scalar_type(), torch::kFloat);
}

TEST(StepEngine, AnEvaluationsForwardRunsPlainlyOnACpu) {
  StepEngine engine(torch::kCPU);
  int calls = 0;
  for (int i = 0; i < 3; ++i)
    engine.forward({{"x", torch::ones({1})}}, "", [&](const Batch& inputs) {
      ++calls;
      return ModelOutput{{"loss", inputs["x"]}};
    });
  EXPECT_EQ(calls, 3);
}

TEST(RecordedBatch, AFullMaskMakesAnotherRecording) {
  Batch batch{{"input_ids", torch::zeros({2, 3}, torch::kLong)},
              {"attention_mask", torch::ones({2, 3}, torch::kLong)}};
  const auto plain = shape_text(batch);
  batch.remember_all_ones("attention_mask");
  EXPECT_NE(shape_text(batch), plain);
  EXPECT_EQ(shape_text(clone_of(batch)), shape_text(batch)) << "a copy knows it too";
  batch.set("attention_mask", torch::zeros({2, 3}, torch::kLong));
  EXPECT_EQ(shape_text(batch), plain);
}

TEST(Precision, CastsInputsOfBfloat16LayersButNotLabels) {
  torch::nn::Linear layer(2, 2);
  AdamW optimizer(layer->parameters());
  Precision precision(torch::kCPU, torch::kBFloat16);
  const Batch batch{{"x", torch::ones({2})}, {"labels", torch::ones({2})}};
  const std::vector<std::string> labels = {"labels"};
  EXPECT_EQ(precision.cast(batch, labels)["x"].scalar_type(), torch::kFloat) << "autocast casts";
  precision.hold_masters(*layer, optimizer);
  const auto cast = precision.cast(batch, labels);
  EXPECT_EQ(cast["x"].scalar_type(), torch::kBFloat16);
  EXPECT_EQ(cast["labels"].scalar_type(), torch::kFloat);
}

TEST(Precision, OutputsAreFloat32Again) {
  ModelOutput outputs{{"logits", torch::ones({2}, torch::kBFloat16)},
                      {"ids", torch::ones({2}, torch::kLong)}};
  Precision(torch::kCPU, torch::kBFloat16).restore(outputs);
  EXPECT_EQ(outputs["logits"].scalar_type(), torch::kFloat);
  EXPECT_EQ(outputs["ids"].scalar_type(), torch::kLong);
}

TEST(Precision, OnlyFloat16ScalesTheLoss) {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    Precision precision(torch::kCPU, dtype);
    precision.begin_run();
    EXPECT_EQ(precision.scaler() != nullptr, dtype == torch::kHalf);
    const auto scaled = precision.scale(torch::ones({})).item<double>();
    EXPECT_EQ(scaled, dtype == torch::kHalf ? 65536 : 1);
  }
}

}  // namespace
}  // namespace gradus
