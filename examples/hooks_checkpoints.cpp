// Trains a classifier with the hook trainer: a step of our own, and hooks for everything around it.
#include <gradus/gradus.h>

#include <cstdio>

namespace hooks = gradus::hooks;

/// A hook of our own: stops the run when the validation is good enough.
struct StopWhenGood : hooks::Hook {
  StopWhenGood() { ord = 50; }  // after MetricsHook (-10)
  void after_epoch(hooks::Trainer& trainer) override {
    const double accuracy =
        trainer.get_hook<hooks::MetricsHook>().epoch_data().at("valid_accuracy");
    store(trainer, "accuracy", accuracy);
    if (accuracy > 0.95) throw hooks::Cancelled();
  }
};

int main() {
  torch::manual_seed(1);
  auto net = std::make_shared<torch::nn::SequentialImpl>(
      torch::nn::Linear(8, 64), torch::nn::ReLU(), torch::nn::Linear(64, 4));
  const auto x = torch::randn({1200, 8});
  const auto y = x.slice(1, 0, 4).argmax(1);
  const auto train = gradus::tensor_loader({{"x", x.slice(0, 0, 1000)}, {"y", y.slice(0, 0, 1000)}},
                                           {.batch_size = 32, .shuffle = true, .seed = 1});
  const auto valid = gradus::tensor_loader({{"x", x.slice(0, 1000)}, {"y", y.slice(0, 1000)}},
                                           {.batch_size = 100});

  const auto step = [&](const gradus::Batch& batch, hooks::Trainer&) -> hooks::Result {
    const auto logits = net->forward(batch["x"]);
    return {{"loss", torch::cross_entropy_loss(logits, batch["y"])},
            {"preds", logits},
            {"targets", batch["y"]}};
  };
  const auto schedule = [](gradus::Optimizer& optimizer) {
    return gradus::get_scheduler("cosine", optimizer, 10, 640);
  };

  hooks::Trainer trainer({
      .model = net,
      .train_step = step,
      .train_dl = train,
      .valid_dl = valid,
      .optim = std::make_shared<gradus::AdamW>(net->parameters(), gradus::AdamWOptions{.lr = 1e-2}),
      .epochs = 20,
      .hooks = {hooks::metrics(hooks::Loss(), hooks::Accuracy(), hooks::LRStats()),
                std::make_shared<hooks::LRSchedulerHook>(schedule),
                std::make_shared<hooks::GradClipHook>(1.0), std::make_shared<hooks::EMAHook>(0.9),
                std::make_shared<hooks::CheckpointHook>(
                    hooks::CheckpointOptions{.save_dir = "hooks_run", .save_every_steps = 100}),
                std::make_shared<StopWhenGood>()},
  });
  trainer.describe_hooks();
  try {
    trainer.fit();
  } catch (const hooks::Cancelled&) {
    std::puts("good enough; the state is in hooks_run/checkpoint_interrupted.pt");
  }
  const auto accuracy =
      hooks::value_as<double>(trainer.state().at("StopWhenGood.accuracy"), "accuracy");
  std::printf("validation accuracy %.3f after %lld steps\n", accuracy,
              static_cast<long long>(trainer.step_state().optimizer_step));
  return accuracy > 0.8 ? 0 : 1;
}
