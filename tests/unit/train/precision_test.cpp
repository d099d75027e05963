// bf16_mode=master: bfloat16 weights, float32 masters; what it leaves behind is float32.
#include <gradus/device/cpu_matmul.h>
#include <gradus/formats/safetensors.h>
#include <gradus/models/auto_model.h>
#include <gradus/optim/adamw.h>
#include <gradus/optim/lion.h>
#include <gradus/optim/master_weights.h>
#include <gradus/optim/schedule_free.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <limits>

#include "regression.h"

namespace gradus::testing {
namespace {

std::shared_ptr<PreTrainedModel> small_gpt2() {
  torch::manual_seed(2);
  return AutoModelForCausalLM::from_config({{"model_type", "gpt2"},
                                            {"vocab_size", 32},
                                            {"n_positions", 16},
                                            {"n_embd", 16},
                                            {"n_layer", 2},
                                            {"n_head", 2},
                                            {"resid_pdrop", 0.0},
                                            {"embd_pdrop", 0.0},
                                            {"attn_pdrop", 0.0}});
}

std::shared_ptr<Dataset> counting_rows() {
  const auto ids = torch::arange(64 * 8).reshape({64, 8}).remainder(31);
  return from_tensors({{"input_ids", ids}, {"labels", ids}});
}

TrainingArguments bf16_arguments(const Box& box, const std::string& mode) {
  return {.output_dir = box.dir(mode),
          .max_steps = 24,
          .learning_rate = 5e-3,
          .lr_scheduler_type = "constant",
          .bf16 = true,
          .logging_steps = 1,
          .disable_tqdm = true,
          .save_steps = 12,
          .use_cpu = !on_gpu(),
          .bf16_mode = mode};
}

std::vector<double> losses_of(const Trainer& trainer) {
  std::vector<double> values;
  for (const auto& entry : trainer.state().log_history)
    if (entry.contains("loss")) values.push_back(entry.at("loss").get<double>());
  return values;
}

TEST(Precision, CheckpointingUnderAutocastChangesNothing) {
  std::vector<std::vector<double>> found;
  for (const json& kwargs :
       {json(false), json(nullptr), json{{"every_n_layers", 2}, {"offload", true}}}) {
    Box box;
    auto args = bf16_arguments(box, "autocast");
    args.max_steps = 6;
    args.gradient_checkpointing = !kwargs.is_boolean();
    if (kwargs.is_object()) args.gradient_checkpointing_kwargs = kwargs;
    args.full_determinism = true;
    Trainer trainer({.model = small_gpt2(), .args = args, .train_dataset = counting_rows()});
    trainer.train();
    found.push_back(losses_of(trainer));
    ASSERT_EQ(found.back().size(), 6u);
    EXPECT_EQ(found.back(), found.front()) << kwargs;
  }
}

TEST(Precision, ATrainerChoosesWhoMultiplies) {
  Box box;
  auto args = bf16_arguments(box, "autocast");
  for (const std::string wanted : {"onednn", "torch"}) {
    args.cpu_matmul = wanted;
    const Trainer trainer({.model = small_gpt2(), .args = args});
    EXPECT_EQ(device::cpu_matmul(), wanted);
  }
  args.cpu_matmul = "mkl";
  try {
    Trainer({.model = small_gpt2(), .args = args});
    FAIL() << "mkl is no choice";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-CONF-3") << error.what();
    EXPECT_NE(error.message().find("cpu_matmul"), std::string::npos) << error.what();
  }
}

TEST(Precision, CheckpointingTakesKnownSettingsOnly) {
  Box box;
  auto args = bf16_arguments(box, "autocast");
  args.gradient_checkpointing = true;
  args.gradient_checkpointing_kwargs = {{"every_layer", 2}};
  try {
    Trainer trainer({.model = small_gpt2(), .args = args, .train_dataset = counting_rows()});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-CONF-10");
    EXPECT_NE(
        std::string(error.what()).find("gradient_checkpointing_kwargs: there is no every_layer"),
        std::string::npos)
        << error.what();
  }
}

TEST(MasterWeights, TheModuleIsBfloat16OnlyWhileTheyLive) {
  torch::nn::Linear layer(8, 4);
  const auto before = layer->weight.detach().clone();
  const auto handle = layer->weight;
  AdamW optimizer(layer->parameters(), {.lr = 1e-4, .weight_decay = 0});
  {
    MasterWeights masters(*layer);
    masters.attach(optimizer);
    EXPECT_EQ(layer->weight.scalar_type(), torch::kBFloat16);
    EXPECT_TRUE(handle.is_same(layer->weight));
    for (int step = 0; step < 4; ++step) {
      layer->forward(torch::ones({2, 8}, torch::kBFloat16)).sum().backward();
      optimizer.step();
      optimizer.zero_grad();
      EXPECT_FALSE(layer->weight.grad().defined());
    }
    {
      const MasterWeights::Shown shown(&masters);
      EXPECT_EQ(layer->weight.scalar_type(), torch::kFloat);
    }
    EXPECT_EQ(layer->weight.scalar_type(), torch::kBFloat16);
    EXPECT_EQ(optimizer.param_groups()[0].params[0].scalar_type(), torch::kFloat);
  }
  // Four steps of 1e-4: too small for bfloat16 to hold, exact in the masters.
  EXPECT_EQ(layer->weight.scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::allclose(layer->weight, before - 4e-4, 0, 1e-6));
  EXPECT_TRUE(optimizer.param_groups()[0].params[0].is_same(layer->weight));
}

TEST(MasterWeights, OtherOptimizersTrainThemToo) {
  torch::nn::Linear layer(8, 4);
  const auto before = layer->weight.detach().clone();
  Lion optimizer(layer->parameters(), {.lr = 1e-4, .weight_decay = 0});
  {
    MasterWeights masters(*layer);
    masters.attach(optimizer);
    layer->forward(torch::ones({2, 8}, torch::kBFloat16)).sum().backward();
    optimizer.step({.clip_coef = torch::tensor(0.5F)});
    EXPECT_TRUE(torch::equal(layer->weight.detach(),
                             optimizer.param_groups()[0].params[0].to(torch::kBFloat16)));
  }
  EXPECT_TRUE(torch::allclose(layer->weight, before - 1e-4, 0, 1e-6));
}

TEST(MasterWeights, BatchNormsStayFloat32AndWrittenMastersShow) {
  torch::nn::BatchNorm1d norm(4);
  torch::nn::Linear layer(4, 4);
  {
    MasterWeights of_norm(*norm), masters(*layer);
    EXPECT_EQ(norm->weight.scalar_type(), torch::kFloat);
    {
      const MasterWeights::Shown shown(&masters, MasterWeights::Shown::Use::written);
      const torch::NoGradGuard no_grad;
      layer->weight.fill_(3);
    }
    EXPECT_EQ(layer->weight.sum().item<float>(), 48);
  }
  EXPECT_EQ(layer->weight.sum().item<float>(), 48);
}

TEST(Precision, MastersTrainAsAutocastDoesAndFilesAreFloat32) {
  Box box;
  std::map<std::string, std::vector<double>> losses;
  for (const std::string mode : {"autocast", "master"}) {
    Trainer trainer({.model = small_gpt2(),
                     .args = bf16_arguments(box, mode),
                     .train_dataset = counting_rows(),
                     .callbacks = {std::make_shared<EmaCallback>(0.9)}});
    trainer.train();
    losses[mode] = losses_of(trainer);
    for (const auto& parameter : trainer.model().parameters())
      EXPECT_EQ(parameter.scalar_type(), torch::kFloat);
    for (const auto& [name, tensor] : read_safetensors_folder(box.run(mode) / "checkpoint-24"))
      EXPECT_EQ(tensor.scalar_type(), torch::kFloat) << name;
  }
  ASSERT_EQ(losses["master"].size(), 24u);
  EXPECT_LT(losses["master"].back(), losses["master"].front() - 0.3);
  for (size_t i = 0; i < 24; ++i)
    EXPECT_NEAR(losses["master"][i], losses["autocast"][i], 0.03) << i;
}

TEST(Precision, AResumeWithMastersIsExactAndMayChangeTheMode) {
  Box box;
  auto args = bf16_arguments(box, "master");
  const auto options = [&] {
    return TrainerOptions{.model = small_gpt2(),
                          .args = args,
                          .train_dataset = counting_rows(),
                          .callbacks = {std::make_shared<EmaCallback>(0.9)}};
  };
  Trainer whole(options());
  whole.train();
  const auto first = box.run("master") / "checkpoint-12";
  args.output_dir = box.dir("resumed");
  Trainer resumed(options());
  resumed.train(Resume::from(first));
  EXPECT_EQ(losses_of(whole), losses_of(resumed));
  const auto a = read_safetensors_folder(box.run("master") / "checkpoint-24"),
             b = read_safetensors_folder(box.run("resumed") / "checkpoint-24");
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(torch::equal(a[i].second, b[i].second)) << a[i].first;
  args.bf16_mode = "autocast";
  args.output_dir = box.dir("moved");
  Trainer moved(options());
  moved.train(Resume::from(first));
  const auto one = losses_of(whole), other = losses_of(moved);
  for (size_t i = 0; i < 24; ++i) EXPECT_NEAR(one[i], other[i], 0.03) << i;
}

TEST(Precision, AnOptimizerThatCannotTrainMastersRunsWithAutocast) {
  Box box;
  auto args = bf16_arguments(box, "master");
  args.optim = "schedule_free_adamw";
  args.lr_scheduler_type = "constant";
  Trainer trainer({.model = small_gpt2(), .args = args, .train_dataset = counting_rows()});
  trainer.train();
  EXPECT_EQ(box->heard("cannot train master weights: bf16 runs with autocast"), 1);
}

}  // namespace
}  // namespace gradus::testing
