// Training on a GPU: no waits between logs, recorded steps equal to plain ones, precision, resume
// across devices.
#include <dlfcn.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/dataset.h>
#include <gradus/device/gpu.h>
#include <gradus/device/runtime.h>
#include <gradus/formats/safetensors.h>
#include <gradus/models/auto_model.h>
#include <gradus/optim/optimizer.h>
#include <gradus/train/callbacks.h>
#include <gradus/train/trainer.h>
#include <gradus/trainers/seq2seq.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include "gpu_run.h"

namespace gradus {
namespace {

using nlohmann::json;

TEST_F(Gpu, RecordedStepsHaveTheBitsOfPlainOnes) {
  for (const bool bf16 : {true, false}) {
    auto args = arguments(out("a"));
    args.bf16 = bf16;
    args.cuda_graphs = "off";
    const auto plain = train(args);
    args.cuda_graphs = "on";
    const auto recorded = train(args);
    ASSERT_EQ(plain.size(), 100u);
    EXPECT_EQ(plain, recorded) << (bf16 ? "bf16" : "float32");
    EXPECT_LT(plain.back(), plain.front());
  }
}

std::vector<double> fp8_losses(const TrainingArguments& args, const std::string& model_type) {
  torch::manual_seed(3);
  const json config = model_type == "gpt2"
                          ? json{{"model_type", "gpt2"}, {"vocab_size", 131}, {"n_positions", 64},
                                 {"n_embd", 128},        {"n_layer", 2},      {"n_head", 4}}
                          : json{{"model_type", "qwen2"},    {"vocab_size", 131},
                                 {"hidden_size", 256},       {"intermediate_size", 512},
                                 {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2}, {"max_position_embeddings", 64}};
  Trainer trainer({.model = AutoModelForCausalLM::from_config(config),
                   .args = args,
                   .train_dataset = tokens(64)});
  trainer.train();
  return losses(trainer);
}

TEST_F(Gpu, RecordedFp8StepsHaveTheBitsOfPlainOnesAndLearn) {
  for (const std::string model : {"gpt2", "qwen2"}) {
    auto args = arguments(out("a"));
    args.max_steps = 60;
    args.bf16 = true;
    args.cuda_graphs = "off";
    const auto usual = fp8_losses(args, model);
    args.fp8 = true;
    const auto plain = fp8_losses(args, model);
    log_->clear();
    args.cuda_graphs = "on";
    const auto recorded = fp8_losses(args, model);
    EXPECT_TRUE(log_->has("rows, clipping and the optimizer's step")) << model;
    EXPECT_EQ(plain, recorded) << model;
    EXPECT_NE(plain, usual) << model;
    EXPECT_LT(plain.back(), 0.7 * plain.front()) << model;
    EXPECT_NEAR(plain[9], usual[9], 0.03 * usual[9]) << model;
  }
}

TEST_F(Gpu, AProfileHasTheKernelsOfARecordedStep) {
  auto args = arguments(out("a"));
  args.max_steps = 12;
  args.bf16 = true;
  args.cuda_graphs = "on";
  args.profile_steps = "9:10";
  train(args);
  int64_t kernels = 0, updates = 0;
  const auto trace = read_json(fs::path(out("a")) / "profile-9-10.json");
  for (const auto& event : trace.at("traceEvents")) {
    if (event.value("cat", "") != "kernel") continue;
    ++kernels;
    updates += event.value("name", "").find("adamw_chunks") != std::string::npos;
  }
  EXPECT_GT(kernels, 40);
  EXPECT_GE(updates, 2);
}

TEST_F(Gpu, RecordedStepsWithWindowsHaveTheBitsOfPlainOnes) {
  auto args = arguments(out("a"));
  args.max_steps = 40;
  args.bf16 = true;
  args.gradient_accumulation_steps = 3;  // 8 batches of a pass: the last window is short
  args.cuda_graphs = "off";
  const auto plain = train(args);
  args.cuda_graphs = "on";
  EXPECT_EQ(plain, train(args));
}

TEST_F(Gpu, RecordedStepsWithCheckpointingHaveTheBitsOfPlainOnes) {
  for (const std::string precision : {"bf16", "fp16", "float32"}) {
    auto args = arguments(out("a"));
    args.max_steps = 40;
    args.bf16 = precision == "bf16";
    args.fp16 = precision == "fp16";
    args.gradient_checkpointing = true;
    args.cuda_graphs = "off";
    const auto plain = train(args, /*dropout=*/0);
    args.cuda_graphs = "on";
    EXPECT_EQ(plain, train(args, 0)) << precision;
    args.gradient_checkpointing_kwargs = {{"every_n_layers", 2}};
    EXPECT_EQ(plain, train(args, 0)) << precision << ", every second block";
    args.gradient_checkpointing_kwargs = {{"offload", true}};
    args.cuda_graphs = "off";
    EXPECT_EQ(plain, train(args, 0)) << precision << ", offloaded";
  }
}

TEST_F(Gpu, CheckpointingThatCannotBeRecordedRunsPlainly) {
  for (const bool offload : {false, true}) {
    auto args = arguments(out("a"));
    args.bf16 = true;
    args.max_steps = 10;
    args.cuda_graphs = "off";
    const auto whole = train(args);
    log_->clear();
    args.gradient_checkpointing = true;
    args.gradient_checkpointing_kwargs = {{"offload", offload}};
    args.cuda_graphs = "auto";
    Trainer trainer({.model = gpt2(0.1), .args = args, .train_dataset = tokens(64)});
    trainer.train();
    EXPECT_TRUE(log_->has(
        offload ? "CUDA graphs are not used: gradient checkpointing moves activations to the host"
                : "CUDA graphs are not used in this run: gradient checkpointing would have to draw "
                  "random numbers"));
    EXPECT_EQ(losses(trainer).size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_NEAR(losses(trainer)[i], whole[i], 2e-2) << "the same dropout";
  }
}

TEST_F(Gpu, ACallbackBeforeTheOptimizersStepMayChangeGradients) {
  std::map<std::string, std::vector<double>> values;
  for (const std::string mode : {"off", "on"}) {
    auto args = arguments(out("a"));
    args.max_steps = 30;
    args.bf16 = true;
    args.cuda_graphs = mode;
    log_->clear();
    Trainer trainer({.model = gpt2(0.1), .args = args, .train_dataset = tokens(64)});
    trainer.on(Event::pre_optimizer_step, [](const CallbackContext& at, TrainerControl&) {
      const torch::NoGradGuard no_grad;
      for (const auto& parameter : at.model->named_module().parameters())
        parameter.grad().mul_(at.state.global_step < 20 ? 1 : 0);
    });
    trainer.train();
    values[mode] = losses(trainer);
    EXPECT_EQ(log_->has("Recorded a CUDA graph"), mode == "on");
    EXPECT_FALSE(log_->has("the optimizer's step"));
  }
  EXPECT_EQ(values["off"], values["on"]);
}

TEST_F(Gpu, RatesAndDecayThatACallbackSetsCountInRecordedSteps) {
  std::map<std::string, std::vector<double>> values;
  for (const std::string mode : {"off", "on", "untouched"}) {
    auto args = arguments(out("a"));
    args.max_steps = 40;
    args.bf16 = true;
    args.weight_decay = 0.01;
    args.cuda_graphs = mode == "off" ? "off" : "on";
    Trainer trainer({.model = gpt2(0.1), .args = args, .train_dataset = tokens(64)});
    trainer.on(Event::step_begin, [&](const CallbackContext& at, TrainerControl&) {
      if (mode == "untouched") return;
      if (at.state.global_step >= 20) at.optimizer->param_groups()[0].lr = 2e-3;
      if (at.state.global_step == 30) at.optimizer->param_groups()[0].weight_decay = 0.5;
    });
    trainer.train();
    values[mode] = losses(trainer);
  }
  EXPECT_EQ(values["off"], values["on"]);
  EXPECT_NE(values["on"], values["untouched"]);
}

TEST_F(Gpu, RecordedEvaluationHasTheBitsOfAPlainOne) {
  std::map<std::string, std::vector<double>> values;
  for (const std::string mode : {"off", "on"}) {
    auto args = arguments(out("a"));
    args.max_steps = 24;
    args.bf16 = true;
    args.eval_strategy = "steps";
    args.eval_steps = 4;
    args.cuda_graphs = mode;
    Trainer trainer({.model = gpt2(0.1),
                     .args = args,
                     .train_dataset = tokens(64),
                     .eval_dataset = tokens(30),
                     .callbacks = {std::make_shared<EmaCallback>(0.9)}});
    trainer.train();
    for (const auto& entry : trainer.state().log_history)
      if (entry.contains("eval_loss")) values[mode].push_back(entry.at("eval_loss").get<double>());
  }
  EXPECT_EQ(values["off"].size(), 6u);
  EXPECT_EQ(values["off"], values["on"]);
}

TEST_F(Gpu, Fp16TrainsRecorded) {
  auto args = arguments(out("a"));
  args.fp16 = true;
  args.cuda_graphs = "off";
  const auto plain = train(args);
  args.cuda_graphs = "on";
  EXPECT_EQ(plain, train(args));
}

TEST_F(Gpu, SkippedStepsHoldTheScheduleBack) {
  auto args = arguments(out("a"));
  args.fp16 = true;
  args.max_steps = 12;
  args.warmup_steps = 100;
  Trainer trainer({.model = gpt2(0), .args = args, .train_dataset = tokens(64)});
  trainer.train();  // the first scale, 65536, overflows now and then: the count of steps taken says
                    // how often
  const auto state = trainer.optimizer()->state_dict();
  const auto taken = int64_t(state.at("state").at(int64_t{0}).at("step").as_tensor().item<float>());
  EXPECT_NEAR(trainer.get_learning_rates().front(), 1e-3 * double(taken) / 100, 1e-9);
}

TEST_F(Gpu, BetweenLogsTheHostNeverWaits) {
  using Count = long (*)();
  using Change = std::function<void(TrainingArguments&)>;
  const auto count = reinterpret_cast<Count>(::dlsym(RTLD_DEFAULT, "gradus_sync_count"));
  if (count == nullptr) GTEST_SKIP() << "libsync_counter.so is not preloaded";
  const std::vector<std::pair<std::string, Change>> kinds = {
      {"bf16", [](auto& args) { args.bf16 = true; }},
      {"fp16", [](auto& args) { args.fp16 = true; }},
      {"float32", [](auto&) {}},
      {"plain bf16", [](auto& args) { args.bf16 = true, args.cuda_graphs = "off"; }},
      {"windows", [](auto& args) { args.bf16 = true, args.gradient_accumulation_steps = 3; }},
      {"tokens counted, labels smoothed",
       [](auto& args) {
         args.bf16 = true, args.include_num_input_tokens_seen = "non_padding",
         args.label_smoothing_factor = 0.1;
       }},
      {"noise, cosine, not clipped",
       [](auto& args) {
         args.bf16 = true, args.neftune_noise_alpha = 5.0, args.lr_scheduler_type = "cosine",
         args.max_grad_norm = 0;
       }},
      {"checkpointed",
       [](auto& args) {
         args.bf16 = true, args.gradient_checkpointing = true, args.cuda_graphs = "off";
       }},
      {"offloaded",
       [](auto& args) {
         args.bf16 = true, args.gradient_checkpointing = true,
         args.gradient_checkpointing_kwargs = {{"offload", true}}, args.cuda_graphs = "off";
       }},
      {"sgd", [](auto& args) { args.bf16 = true, args.optim = "sgd"; }},
      {"adafactor", [](auto& args) { args.bf16 = true, args.optim = "adafactor"; }},
      {"lion_32bit", [](auto& args) { args.bf16 = true, args.optim = "lion_32bit"; }},
  };
  for (const auto& [kind, change] : kinds) {
    auto args = arguments(out("a"));
    args.full_determinism = false;
    args.max_steps = 260;
    args.logging_steps = 120;
    change(args);
    Trainer trainer({.model = gpt2(0.1), .args = args, .train_dataset = tokens(400)});
    std::map<int64_t, long> at_step;
    log_->clear();
    trainer.on(Event::step_end, [&](const CallbackContext& at, TrainerControl&) {
      at_step[at.state.global_step] = count();
    });
    trainer.train();
    EXPECT_EQ(log_->has("Recorded a CUDA graph"), args.cuda_graphs == "auto") << kind;
    EXPECT_EQ(at_step[239] - at_step[122], 0)
        << kind;  // 117 steps, two passes over the data among them
    EXPECT_GT(count() - at_step[239], 0)
        << "the log at step 240 must have waited: the counter does not work";
  }
}

TEST_F(Gpu, ResumeIsExactWithGraphs) {
  auto args = arguments(out("whole"));
  args.bf16 = true;
  args.cuda_graphs = "on";
  args.max_steps = 40;
  args.save_strategy = "steps";
  args.save_steps = 15;
  const auto whole = train(args);
  for (const int64_t stop : {15, 30}) {
    args.output_dir = out("resumed");
    log_->clear();
    Trainer trainer({.model = gpt2(0.1, 4), .args = args, .train_dataset = tokens(64)});
    trainer.train(Resume::from(folder_ / "whole" / ("checkpoint-" + std::to_string(stop))));
    EXPECT_EQ(whole, losses(trainer)) << stop;
    EXPECT_TRUE(log_->has("Recorded a CUDA graph"));
    const auto a = read_safetensors_folder(folder_ / "whole/checkpoint-40"),
               b = read_safetensors_folder(folder_ / "resumed/checkpoint-40");
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].second.scalar_type(), torch::kFloat) << a[i].first;
      EXPECT_TRUE(torch::equal(a[i].second, b[i].second)) << a[i].first;
    }
  }
  const auto state = read_json(folder_ / "whole/checkpoint-40/gradus_state.json");
  EXPECT_EQ(state.at("attention_backend"), "flash");
}

TEST_F(Gpu, ARunMovesBetweenCpuAndGpuAndBetweenThePrecisions) {
  auto args = arguments(out("run"));
  args.max_steps = 10;
  args.save_strategy = "steps";
  args.save_steps = 10;
  args.use_cpu = true;
  args.lr_scheduler_type = "constant";
  args.warmup_steps = 0;
  const auto go = [&](bool cpu, bool bf16, const std::string& mode) {
    args.use_cpu = cpu;
    args.bf16 = bf16;
    args.bf16_mode = mode;
    Trainer trainer({.model = gpt2(0), .args = args, .train_dataset = tokens(64)});
    trainer.train(Resume::last());
    args.max_steps += 10;
    return losses(trainer);
  };
  go(true, false, "auto");
  go(false, false, "auto");
  go(false, true, "master");
  go(false, true, "autocast");
  const auto moved = go(true, false, "auto");
  auto alone = arguments(out("alone"));
  alone.max_steps = 50;
  alone.use_cpu = true;
  alone.lr_scheduler_type = "constant";
  alone.warmup_steps = 0;
  alone.cuda_graphs = "off";
  const auto expected = train(alone, 0);
  ASSERT_EQ(moved.size(), expected.size());
  for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(moved[i], expected[i], 2e-3) << i;  // float32 on both
  for (size_t i = 20; i < 50; ++i) EXPECT_NEAR(moved[i], expected[i], 5e-2) << i;
}

struct ReadsBack : Model {
  ReadsBack() : layer(register_module("layer", torch::nn::Linear(4, 1))) {}
  ModelOutput forward(const Batch& inputs, const ForwardOptions&) override {
    const auto y = layer->forward(inputs["x"]);
    if (y.sum().item<float>() > 1e30F) throw std::runtime_error("too large");
    return {{"loss", (y - inputs["labels"]).pow(2).mean()}, {"logits", y}};
  }
  torch::nn::Linear layer;
};

TEST_F(Gpu, WhatCannotBeRecordedRunsPlainly) {
  auto args = arguments(out("a"));
  args.max_steps = 20;
  args.cuda_graphs = "on";
  torch::manual_seed(1);
  const auto x = torch::randn({64, 4});
  Trainer trainer({.model = std::make_shared<ReadsBack>(),
                   .args = args,
                   .train_dataset = from_tensors({{"x", x}, {"labels", x.sum(1, true)}})});
  trainer.train();
  EXPECT_EQ(losses(trainer).size(), 20u);
  EXPECT_TRUE(
      log_->has("CUDA graphs are not used in this run: the model or the loss makes the host wait"));
}

std::shared_ptr<PreTrainedModel> t5() {
  torch::manual_seed(3);
  return AutoModelForSeq2SeqLM::from_config({{"model_type", "t5"},
                                             {"vocab_size", 131},
                                             {"d_model", 64},
                                             {"d_kv", 16},
                                             {"d_ff", 128},
                                             {"num_layers", 2},
                                             {"num_heads", 4},
                                             {"dropout_rate", 0.1},
                                             {"pad_token_id", 0},
                                             {"decoder_start_token_id", 0}});
}

TEST_F(Gpu, Seq2SeqTrainerRecordsItsStepsAndASubclassOfItDoesNot) {
  struct Own : Seq2SeqTrainer {
    using Seq2SeqTrainer::Seq2SeqTrainer;
  };
  std::map<std::string, std::vector<double>> found;
  for (const std::string mode : {"auto", "off"}) {
    log_->clear();
    Seq2SeqTrainingArguments args{.output_dir = out(mode), .max_steps = 20, .logging_steps = 1};
    args.log_level = "info";
    args.disable_tqdm = true;
    args.save_strategy = "no";
    args.bf16 = true;
    args.full_determinism = true;
    args.cuda_graphs = mode;
    Seq2SeqTrainer trainer({.model = t5(), .args = args, .train_dataset = tokens(64)});
    trainer.train();
    found[mode] = losses(trainer);
    EXPECT_EQ(log_->has("Recorded a CUDA graph"), mode == "auto");
    if (mode == "off") continue;
    log_->clear();
    Own own({.model = t5(), .args = args, .train_dataset = tokens(64)});
    own.train();
    EXPECT_FALSE(log_->has("Recorded a CUDA graph"));
    EXPECT_TRUE(log_->has("the trainer is a class of your own"));
  }
  EXPECT_EQ(found["auto"], found["off"]) << "to the last bit";
}

TEST_F(Gpu, AUsersComputeLossSeesAFullMask) {
  struct Looks : Trainer {
    using Trainer::Trainer;
    Loss compute_loss(Model& model, Batch inputs,
                      std::optional<torch::Tensor> num_items_in_batch) override {
      seen += inputs.contains("attention_mask");
      return Trainer::compute_loss(model, std::move(inputs), num_items_in_batch);
    }
    int seen = 0;
  };
  auto args = arguments(out("mask"));
  args.max_steps = 3;
  const auto ids = torch::arange(64 * 16).reshape({64, 16}).remainder(131);
  const auto rows = from_tensors(
      {{"input_ids", ids}, {"attention_mask", torch::ones_like(ids)}, {"labels", ids}});
  Looks trainer({.model = gpt2(0), .args = args, .train_dataset = rows});
  trainer.train();
  EXPECT_EQ(trainer.seen, 3);
}

TEST_F(Gpu, OutOfMemoryIsExplainedAndLeavesTheCheckpoint) {
  struct Hungry : ReadsBack {
    ModelOutput forward(const Batch& inputs, const ForwardOptions& options) override {
      if (++calls > 5)
        torch::empty({int64_t(1) << 42}, torch::dtype(torch::kByte).device(torch::kCUDA));
      return ReadsBack::forward(inputs, options);
    }
    int calls = 0;
  };
  auto args = arguments(out("a"));
  args.max_steps = 20;
  args.save_strategy = "steps";
  args.save_steps = 4;
  const auto x = torch::randn({64, 4});
  Trainer trainer({.model = std::make_shared<Hungry>(),
                   .args = args,
                   .train_dataset = from_tensors({{"x", x}, {"labels", x.sum(1, true)}})});
  try {
    trainer.train();
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-GPU-1");
    EXPECT_NE(std::string(error.what()).find("memory ran out: the run held"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("--per_device_train_batch_size"), std::string::npos);
  }
  trainer.wait_for_saves();
  EXPECT_TRUE(fs::exists(folder_ / "a/checkpoint-4/manifest.json"));
}

TEST_F(Gpu, ThePluginIsThere) {
  ASSERT_TRUE(device::has_plugin()) << device::plugin_text();
  const auto cards = device::gpu_infos();
  ASSERT_FALSE(cards.empty());
  EXPECT_GT(cards[0].memory, int64_t(1) << 30);
  EXPECT_GT(cards[0].major, 5);
}

}  // namespace
}  // namespace gradus
