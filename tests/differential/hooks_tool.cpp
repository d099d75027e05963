// hooks_tool CASE FOLDER OUT [RESUME]: runs one of the combinations of hooks_test.py on
// FOLDER/start.pt and writes what happened to OUT.
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/formats/torch_file.h>
#include <gradus/hooks/accelerate_hook.h>
#include <gradus/hooks/checkpoint_hook.h>
#include <gradus/hooks/ema_hook.h>
#include <gradus/hooks/metrics_hook.h>
#include <gradus/hooks/optimization_hooks.h>
#include <gradus/hooks/progress_hooks.h>
#include <gradus/hooks/trainer.h>
#include <gradus/optim/adamw.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <ATen/ops/cross_entropy_loss.h>

#include <cstdio>

namespace hooks = gradus::hooks;
using nlohmann::json;

namespace {

/// Notes every call; after a step also the losses and the counters.
struct Notes {
  json calls = json::array(), steps = json::array();
};

void note(Notes& notes, const std::string& who, hooks::Point point, hooks::Trainer& trainer,
          bool with_values) {
  notes.calls.push_back(who + "." + std::string(hooks::point_name(point)));
  if (!with_values || point != hooks::Point::after_step) return;
  const auto& s = trainer.step_state();
  notes.steps.push_back({{"loss", trainer.loss()},
                         {"result", trainer.result()["loss"].item<double>()},
                         {"training", trainer.training()},
                         {"did_opt_step", trainer.did_opt_step()},
                         {"lr", trainer.optim().param_groups()[0].lr},
                         {"state",
                          {s.batch_idx, s.optimizer_step, s.samples_seen, s.epoch,
                           s.grad_accum_steps, s.num_processes}}});
}

#define NOTE(point)                                             \
  void point(hooks::Trainer& trainer) override {                \
    note(notes, name(), hooks::Point::point, trainer, ord > 0); \
  }
struct Notebook : hooks::Hook {
  explicit Notebook(Notes& to) : notes(to) {}
  // clang-format off
  NOTE(before_fit) NOTE(before_epoch) NOTE(before_step) NOTE(after_pred) NOTE(after_loss)
  NOTE(after_backward) NOTE(after_step) NOTE(before_valid) NOTE(after_epoch) NOTE(after_fit)
  NOTE(after_cancel)
  Notes& notes;
  // clang-format on
};
#undef NOTE
struct Early : Notebook {
  explicit Early(Notes& to) : Notebook(to) { ord = -300; }
};
struct Late : Notebook {
  explicit Late(Notes& to) : Notebook(to) { ord = 300; }
};
/// Interrupts the `at`-th batch.
struct Interrupter : hooks::MainProcessHook {
  explicit Interrupter(int at) : left(at) { ord = 1; }
  void before_step(hooks::Trainer&) override {
    if (--left == 0) throw hooks::Cancelled();
  }
  int left;
};

std::vector<gradus::Batch> batches_of(const gradus::StateTree& start, const char* x,
                                      const char* y) {
  std::vector<gradus::Batch> batches;
  const auto inputs = start.at(x).as_tensor().split(4), targets = start.at(y).as_tensor().split(4);
  for (size_t i = 0; i < inputs.size(); ++i)
    batches.push_back({{"x", inputs[i]}, {"y", targets[i]}});
  return batches;
}

std::vector<hooks::HookHandle> hooks_of(const std::string& name, const std::filesystem::path& out,
                                        const std::optional<std::filesystem::path>& resume) {
  const auto schedule = [](gradus::Optimizer& optimizer) {
    return std::make_unique<gradus::LambdaLR>(
        optimizer, [](int64_t step) { return 1.0 / (1.0 + 0.1 * double(step)); });
  };
  const auto metrics = [&](std::vector<std::shared_ptr<hooks::Metric>> list) {
    return std::make_shared<hooks::MetricsHook>(hooks::MetricsOptions{
        .metrics = std::move(list), .tracker_type = "file", .log_file = out / "metrics.jsonl"});
  };
  const auto checkpoints = [&](int64_t every) {
    return std::make_shared<hooks::CheckpointHook>(
        hooks::CheckpointOptions{.save_dir = out / "saved",
                                 .save_every_steps = every,
                                 .keep_last = 2,
                                 .resume_path = resume});
  };
  const auto loss = std::make_shared<hooks::Loss>();
  const auto accuracy = std::make_shared<hooks::Accuracy>("logits", "y");
  if (name == "plain") return {metrics({loss, accuracy})};
  if (name == "accumulation")
    return {std::make_shared<hooks::GradientAccumulationHook>(2), metrics({loss})};
  if (name == "clipping") return {std::make_shared<hooks::GradClipHook>(0.05)};
  if (name == "amp")
    return {std::make_shared<hooks::AMPHook>(
        hooks::AMPOptions{.dtype = torch::kHalf, .device_type = torch::kCPU})};
  if (name == "ema") return {std::make_shared<hooks::EMAHook>(0.8), metrics({loss, accuracy})};
  if (name == "schedule")
    return {std::make_shared<hooks::LRSchedulerHook>(schedule),
            metrics({std::make_shared<hooks::LRStats>(), loss})};
  if (name == "checkpoint")
    return {checkpoints(3), metrics({loss}), std::make_shared<hooks::EMAHook>(0.8),
            std::make_shared<hooks::LRSchedulerHook>(schedule)};
  if (name == "interrupt")
    return {checkpoints(3), std::make_shared<hooks::EMAHook>(0.8),
            std::make_shared<Interrupter>(resume ? 1000 : 10)};
  if (name == "all")
    return {std::make_shared<hooks::EmptyCudaCacheHook>(),
            std::make_shared<hooks::MemoryProfilerHook>(),
            std::make_shared<hooks::ProgressBarHook>(),
            std::make_shared<hooks::EMAHook>(),
            checkpoints(1),
            std::make_shared<hooks::GradClipHook>(),
            std::make_shared<hooks::GradientAccumulationHook>(2),
            metrics({loss}),
            std::make_shared<hooks::LRSchedulerHook>(schedule),
            std::make_shared<hooks::AMPHook>(),
            std::make_shared<hooks::AccelerateHook>(hooks::AccelerateOptions{.cpu = true}),
            std::make_shared<Interrupter>(1)};
  if (name == "accelerate")
    return {std::make_shared<hooks::AccelerateHook>(hooks::AccelerateOptions{
        .gradient_accumulation_steps = 2, .max_grad_norm = 0.05, .cpu = true})};
  if (name == "processes")
    return {std::make_shared<hooks::AccelerateHook>(hooks::AccelerateOptions{
                .gradient_accumulation_steps = 2, .max_grad_norm = 0.05, .cpu = true}),
            std::make_shared<hooks::LRSchedulerHook>(schedule)};
  throw gradus::Error("T-1", gradus::ErrorKind::usage, "unknown case " + name);
}

int run(const std::string& name, const std::filesystem::path& folder,
        const std::filesystem::path& out, const std::optional<std::filesystem::path>& resume) {
  const auto start = gradus::read_torch_file(folder / "start.pt");
  auto net = std::make_shared<torch::nn::SequentialImpl>(
      torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 3));
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : net->named_parameters())
      item.value().copy_(start.at("model").at(item.key()).as_tensor());
  }
  const auto step = [&](const gradus::Batch& batch, hooks::Trainer&) -> hooks::Result {
    const auto logits = net->forward(batch["x"]);
    return {{"loss", at::cross_entropy_loss(logits, batch["y"])},
            {"logits", logits},
            {"y", batch["y"]}};
  };
  const bool validates = name == "ema" || name == "checkpoint" || name == "interrupt";
  hooks::Batches train_dl = batches_of(start, "x", "y");
  if (name == "processes")
    train_dl = gradus::tensor_loader(
        {{"x", start.at("x").as_tensor()}, {"y", start.at("y").as_tensor()}}, {.batch_size = 4});
  Notes notes;
  auto all = hooks_of(name, out, resume);
  all.insert(all.begin(), std::make_shared<Late>(notes));
  all.push_back(std::make_shared<Early>(notes));
  hooks::Trainer trainer(
      {.model = net,
       .train_step = step,
       .train_dl = train_dl,
       .valid_dl = validates ? hooks::Batches(batches_of(start, "vx", "vy")) : hooks::Batches(),
       .optim =
           std::make_shared<gradus::AdamW>(net->parameters(), gradus::AdamWOptions{.lr = 1e-2}),
       .epochs = 3,
       .hooks = all,
       .device = torch::kCPU,
       .config = {{"width", 16}, {"name", "net"}}});
  json report = {{"table", trainer.describe_hooks()}, {"cancelled", false}};
  try {
    if (name != "all") trainer.fit();
  } catch (const hooks::Cancelled&) {
    report["cancelled"] = true;
  }
  report["calls"] = notes.calls;
  report["steps"] = notes.steps;
  gradus::write_file_atomically(out / "report.json", gradus::dump_json(report));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return 2;
  try {
    return run(words[1], words[2], words[3],
               count > 4 ? std::optional<std::filesystem::path>(words[4]) : std::nullopt);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
