// --debug underflow_overflow.
#include <gradus/models/auto_model.h>
#include <torch/nn/modules/linear.h>

#include "regression.h"

namespace gradus::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Linear, exp, Linear: the exp overflows when the first layer gives much.
struct Exponential : Model {
  Exponential()
      : first(register_module("first", torch::nn::Linear(1, 4))),
        second(register_module("second", torch::nn::Linear(4, 1))) {}
  ModelOutput forward(const Batch& inputs, const ForwardOptions&) override {
    const auto y = second->forward(first->forward(inputs["input_x"].view({-1, 1})).exp()).flatten();
    ModelOutput out;
    out.set("loss", torch::mse_loss(y, inputs["labels"]));
    out.set("logits", y);
    return out;
  }
  torch::nn::Linear first, second;
};

std::shared_ptr<PreTrainedModel> watched_gpt2() {
  torch::manual_seed(2);
  return AutoModelForCausalLM::from_config({{"model_type", "gpt2"},
                                            {"vocab_size", 32},
                                            {"n_positions", 16},
                                            {"n_embd", 16},
                                            {"n_layer", 2},
                                            {"n_head", 2}});
}

std::shared_ptr<Dataset> watched_rows() {
  const auto ids = torch::arange(64 * 8).reshape({64, 8}).remainder(31);
  return from_tensors({{"input_ids", ids}, {"labels", ids}});
}

TrainingArguments watched_arguments(const Box& box, const char* debug) {
  return {.output_dir = box.dir(),
          .max_steps = 6,
          .learning_rate = 5e-3,
          .logging_steps = 1,
          .disable_tqdm = true,
          .save_strategy = "no",
          .use_cpu = !on_gpu(),
          .debug = debug};
}

void fill(PreTrainedModel& model, const std::string& name, float value) {
  const torch::NoGradGuard no_grad;
  model.named_parameters()[name].fill_(value);
}

TEST(DebugUnderflowOverflow, NamesTheLayerWithTheBadWeight) {
  Box box;
  const auto model = watched_gpt2();
  fill(*model, "transformer.h.1.mlp.c_fc.weight", kInfinity);
  const auto error = error_of([&] {
    Trainer({.model = model,
             .args = watched_arguments(box, "underflow_overflow"),
             .train_dataset = watched_rows()})
        .train();
  });
  EXPECT_EQ(error.id(), "G-TRAIN-16");
  EXPECT_TRUE(
      error.message().starts_with("DebugUnderflowOverflow: inf/nan detected (weight has infs"))
      << error.message();
  EXPECT_TRUE(error.message().ends_with("aborting as there is no point running further"))
      << error.message();
  const auto& text = box->printed;
  EXPECT_NE(text.find("weight has infs\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n\nDetected inf/nan during batch_number=0\nLast "), std::string::npos)
      << text;
  EXPECT_NE(text.find(" forward frames:\nabs min  abs max  metadata\n"), std::string::npos) << text;
  EXPECT_NE(text.find("                  *** Starting batch number=0 ***\n"), std::string::npos)
      << text;
  const auto last = text.rfind("\n                  ");
  EXPECT_EQ(text.substr(last, text.find('\n', last + 1) - last),
            "\n                  transformer.h.1.mlp.c_fc Conv1D")
      << text;
  EXPECT_EQ(text.substr(text.find('\n', last + 1), 26), "\n     inf      inf weight\n") << text;
}

TEST(DebugUnderflowOverflow, APlaceForAResultMayHoldAnything) {
  struct WritesInto : Model {
    WritesInto() : weight(register_parameter("weight", torch::ones({1, 1}))) {}
    ModelOutput forward(const Batch& inputs, const ForwardOptions&) override {
      const auto x = inputs["input_x"].reshape({-1, 1});
      auto place = torch::full({x.size(0), 1}, kInfinity, x.options());
      {
        const torch::NoGradGuard no_grad;
        torch::mm_out(place, x, weight);
        torch::full({1, 1}, kInfinity, x.options()).copy_(weight);
      }
      const auto y = torch::mm(x, weight) + 0 * place;
      return {{"loss", torch::mse_loss(y.flatten(), inputs["labels"])}, {"logits", y}};
    }
    torch::Tensor weight;
  };
  Box box;
  auto options = regression(box, watched_arguments(box, "underflow_overflow"));
  options.model = std::make_shared<WritesInto>();
  EXPECT_EQ(Trainer(std::move(options)).train().global_step, 6);
}

TEST(DebugUnderflowOverflow, KeepsTheLast21Frames) {
  Box box;
  TrainerOptions options{.model = watched_gpt2(),
                         .args = watched_arguments(box, "underflow_overflow"),
                         .train_dataset = watched_rows()};
  Trainer trainer(std::move(options));
  trainer.on(Event::step_end, [&](const CallbackContext& at, TrainerControl&) {
    if (at.state.global_step == 3)
      fill(dynamic_cast<PreTrainedModel&>(trainer.model()), "transformer.ln_f.bias", std::nanf(""));
  });
  EXPECT_EQ(error_of([&] { trainer.train(); }).id(), "G-TRAIN-16");
  EXPECT_NE(box->printed.find("bias has nans\n"), std::string::npos) << box->printed;
  EXPECT_NE(box->printed.find("Detected inf/nan during batch_number=3\nLast 21 forward frames:\n"),
            std::string::npos)
      << box->printed;
}

TEST(DebugUnderflowOverflow, SeesWhatHappensBetweenLayers) {
  Box box;
  auto options = regression(box, watched_arguments(box, "underflow_overflow"));
  const auto model = std::make_shared<Exponential>();
  {
    const torch::NoGradGuard no_grad;
    model->first->weight.fill_(1e4);
  }
  options.model = model;
  const auto error = error_of([&] { Trainer(std::move(options)).train(); });
  EXPECT_TRUE(
      error.message().starts_with("DebugUnderflowOverflow: inf/nan detected (input[0] has infs"))
      << error.message();
  const auto& text = box->printed;
  EXPECT_LT(text.find(" first Linear\n"), text.find(" second Linear\n")) << text;
  EXPECT_NE(text.find("\n1.00e+04 1.00e+04 weight\n"), std::string::npos) << text;
}

TEST(DebugUnderflowOverflow, WatchesALossOfTheUsersOwn) {
  struct OwnLoss : Trainer {
    using Trainer::Trainer;
    Loss compute_loss(Model& model, Batch inputs, std::optional<torch::Tensor>) override {
      auto outputs = model.forward(inputs);
      return {(outputs["logits"] - outputs["logits"]).mean() / 0.0, outputs};
    }
  };
  Box box;
  auto options = regression(box, watched_arguments(box, "underflow_overflow"), 1, 1);
  const auto error = error_of([&] { OwnLoss(std::move(options)).train(); });
  EXPECT_TRUE(error.message().starts_with(
      "DebugUnderflowOverflow: inf/nan detected (output[loss] has nans)"))
      << error.message();
  EXPECT_NE(box->printed.find("                   RegressionModel\n"), std::string::npos)
      << box->printed;
  EXPECT_NE(box->printed.find(" input[labels]\n"), std::string::npos) << box->printed;
}

TEST(DebugUnderflowOverflow, WatchesEvaluationToo) {
  Box box;
  auto options = regression(box, watched_arguments(box, "underflow_overflow"), kInfinity, 1);
  EXPECT_EQ(error_of([&] { Trainer(std::move(options)).evaluate(); }).id(), "G-TRAIN-16");
}

TEST(DebugUnderflowOverflow, ChangesNothingInAHealthyRun) {
  for (const bool half : {false, true}) {
    std::vector<std::vector<json>> logs;
    for (const char* debug : {"", "underflow_overflow"}) {
      Box box;
      auto args = watched_arguments(box, debug);
      args.bf16 = half;
      args.full_determinism = true;  // memory that was not written to yet is all nan then
      Trainer trainer({.model = watched_gpt2(), .args = args, .train_dataset = watched_rows()});
      trainer.train();
      logs.push_back(timeless(trainer.state().log_history));
      EXPECT_EQ(box->printed.find("abs min"), std::string::npos);
      EXPECT_EQ(box->heard("underflow_overflow"), 0);
    }
    EXPECT_EQ(logs[0], logs[1]);
  }
}

}  // namespace
}  // namespace gradus::testing
