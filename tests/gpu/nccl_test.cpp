// A group of one process with a GPU: the way that several take, NCCL in recorded steps among it.
#include <dlfcn.h>
#include <gradus/device/gpu.h>
#include <gradus/distributed/process_group.h>
#include <gradus/formats/safetensors.h>

#include <map>

#include "gpu_run.h"

namespace gradus {
namespace {

class Nccl : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(device::has_plugin()) << device::plugin_text();
  }

  /// The losses without a group and with one must have the same bits.
  void compare(const std::string& kind, TrainingArguments args, double dropout = 0.1) {
    const auto alone = train(args, dropout);
    for (const std::string backend : {"nccl", "gloo"}) {
      args.ddp_backend = backend;
      if (backend == "gloo") args.cuda_graphs = "off";
      EXPECT_EQ(alone, train(args, dropout)) << kind << ", " << backend;
    }
  }
};

TEST_F(Nccl, RecordedStepsOfAGroupHaveTheBitsOfASingleProcess) {
  for (const std::string precision : {"bf16", "fp16", "float32"}) {
    auto args = arguments(out("a"));
    args.max_steps = 40;
    args.bf16 = precision == "bf16";
    args.fp16 = precision == "fp16";
    args.cuda_graphs = "on";
    compare(precision, args);
  }
}

TEST_F(Nccl, SoDoPlainStepsAndThoseOfWindowsAndSmallBuckets) {
  auto args = arguments(out("a"));
  args.max_steps = 40;
  args.bf16 = true;
  args.cuda_graphs = "off";
  compare("plain", args);
  args.cuda_graphs = "on";
  args.ddp_bucket_cap_mb = 1;
  args.gradient_accumulation_steps = 3;  // 8 batches of a pass: the last window is short
  compare("windows", args);
  args.ddp_find_unused_parameters = false;
  compare("all parameters are used", args);
  args.ddp_find_unused_parameters.reset();
  args.ddp_static_graph = true;
  compare("static graph", args);
}

TEST_F(Nccl, GradientsThatACallbackReadsAreThoseOfTheGroup) {
  std::map<std::string, std::vector<double>> values;
  for (const std::string backend : {"", "nccl"}) {
    auto args = arguments(out("a"));
    args.max_steps = 30;
    args.bf16 = true;
    args.gradient_accumulation_steps = 2;
    args.cuda_graphs = "on";
    if (!backend.empty()) args.ddp_backend = backend;
    log_->clear();
    Trainer trainer({.model = gpt2(0.1), .args = args, .train_dataset = tokens(64)});
    trainer.on(Event::pre_optimizer_step, [&](const CallbackContext& at, TrainerControl&) {
      for (const auto& parameter : at.model->named_module().parameters())
        values[backend].push_back(parameter.grad().to(torch::kDouble).sum().item<double>());
    });
    trainer.train();
    EXPECT_TRUE(log_->has("Recorded a CUDA graph"));
    for (const double loss : losses(trainer)) values[backend].push_back(loss);
  }
  EXPECT_FALSE(values[""].empty());
  EXPECT_EQ(values[""], values["nccl"]);
}

TEST_F(Nccl, TheHostNeverWaitsBetweenLogs) {
  using Count = long (*)();
  const auto count = reinterpret_cast<Count>(::dlsym(RTLD_DEFAULT, "gradus_sync_count"));
  if (count == nullptr) GTEST_SKIP() << "libsync_counter.so is not preloaded";
  auto args = arguments(out("a"));
  args.full_determinism = false;
  args.max_steps = 260;
  args.logging_steps = 120;
  args.bf16 = true;
  args.ddp_backend = "nccl";
  Trainer trainer({.model = gpt2(0.1), .args = args, .train_dataset = tokens(400)});
  std::map<int64_t, long> at_step;
  log_->clear();
  trainer.on(Event::step_end, [&](const CallbackContext& at, TrainerControl&) {
    at_step[at.state.global_step] = count();
  });
  trainer.train();
  EXPECT_TRUE(log_->has("Recorded a CUDA graph"));
  EXPECT_EQ(at_step[239] - at_step[122], 0);
  EXPECT_GT(count() - at_step[239], 0) << "the counter does not work";
}

TEST_F(Nccl, ARunGoesOnWithAndWithoutAGroup) {
  auto args = arguments(out("whole"));
  args.bf16 = true;
  args.cuda_graphs = "on";
  args.max_steps = 40;
  args.eval_strategy = "steps";
  args.eval_steps = 20;
  args.save_strategy = "steps";
  args.save_steps = 20;
  const auto go = [&](const std::string& folder, bool has_group, const Resume& resume) {
    args.output_dir = out(folder);
    args.ddp_backend = has_group ? std::optional<std::string>("nccl") : std::nullopt;
    Trainer trainer({.model = gpt2(0.1),
                     .args = args,
                     .train_dataset = tokens(64),
                     .eval_dataset = tokens(30)});
    trainer.train(resume);
    auto values = losses(trainer);
    for (const auto& entry : trainer.state().log_history)
      if (entry.contains("eval_loss")) values.push_back(entry.at("eval_loss").get<double>());
    return values;
  };
  const auto whole = go("whole", false, Resume::none());
  EXPECT_EQ(whole, go("group", true, Resume::none()));
  EXPECT_EQ(whole, go("a", true, Resume::from(folder_ / "whole/checkpoint-20")));
  EXPECT_EQ(whole, go("b", false, Resume::from(folder_ / "group/checkpoint-20")));
}

class NcclStage : public Nccl, public ::testing::WithParamInterface<int64_t> {};

TEST_P(NcclStage, ShardedStepsAreThoseOfASingleProcess) {
  auto args = arguments(out("a"));
  args.max_steps = 20;
  args.cuda_graphs = "off";
  const auto alone = train(args);
  args.ddp_backend = "nccl";
  args.zero_stage = GetParam();
  const auto sharded = train(args);
  ASSERT_EQ(alone.size(), sharded.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(alone[i], sharded[i], 1e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Stages, NcclStage, ::testing::Values(1, 2, 3));

TEST_F(Nccl, ExchangesOfAGroupOfOneLeaveValuesAsTheyAre) {
  for (const bool has_nccl : {false, true}) {
    const auto group = ProcessGroup::alone(std::chrono::seconds(20));
    if (has_nccl) group->use_nccl(torch::Device(torch::kCUDA, 0));
    EXPECT_EQ(group->has_nccl(), has_nccl);
    const auto value = torch::arange(6, torch::dtype(torch::kFloat).device(torch::kCUDA));
    auto changed = value.clone();
    group->sum(changed);
    group->broadcast(changed);
    EXPECT_TRUE(torch::equal(changed, value));
    EXPECT_TRUE(torch::equal(group->gather(value).at(0), value));
    auto all = torch::zeros_like(value);
    group->start_gather(all, value).wait();
    EXPECT_TRUE(torch::equal(all, value));
    auto received = torch::zeros_like(value);
    group->start_all_to_all(received, value).wait();
    EXPECT_TRUE(torch::equal(received, value));
    EXPECT_EQ(group->channel("more")->has_nccl(), has_nccl);
    group->barrier();
    EXPECT_EQ(group->gather_bytes("text"), std::vector<std::string>{"text"});
  }
}

}  // namespace
}  // namespace gradus
