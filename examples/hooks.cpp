// The hook trainer: a step you write, and hooks that run in order around it.
#include <gradus/gradus.h>

namespace hooks = gradus::hooks;

struct CountParameters : hooks::MainProcessHook {
  CountParameters() { ord = 7; }
  void before_fit(hooks::Trainer& trainer) override {
    int64_t n = 0;
    for (const auto& p : trainer.model().parameters()) n += p.numel();
    store(trainer, "parameters", n);
  }
};

int main() {
  auto net = std::make_shared<torch::nn::SequentialImpl>(
      torch::nn::Linear(4, 32), torch::nn::ReLU(), torch::nn::Linear(32, 3));
  const auto x = torch::randn({256, 4});
  const auto y = x.slice(1, 0, 3).argmax(1);
  auto batches =
      gradus::tensor_loader({{"x", x}, {"y", y}}, {.batch_size = 32, .shuffle = true, .seed = 1});

  const auto step = [&](const gradus::Batch& batch, hooks::Trainer&) -> hooks::Result {
    const auto logits = net->forward(batch["x"]);
    return {{"loss", torch::cross_entropy_loss(logits, batch["y"])},
            {"preds", logits.argmax(1)},
            {"targets", batch["y"]}};
  };

  hooks::Trainer trainer({
      .model = net,
      .train_step = step,
      .train_dl = batches,
      .valid_dl = batches,
      .optim = std::make_shared<gradus::AdamW>(net->parameters(), gradus::AdamWOptions{.lr = 1e-2}),
      .epochs = 10,
      .hooks = {hooks::metrics(hooks::Loss(), hooks::Accuracy()),
                std::make_shared<hooks::GradClipHook>(1.0),
                std::make_shared<hooks::GradientAccumulationHook>(2),
                std::make_shared<CountParameters>(),
                std::make_shared<hooks::LambdaHook>(hooks::Point::after_epoch,
                                                    [](hooks::Trainer& t) {
                                                      t.state()["epochs_done"] =
                                                          t.step_state().epoch + 1;
                                                    })},
  });
  trainer.describe_hooks();  // a Markdown table: what runs when, in which order
  trainer.fit();
  return trainer.get_hook<hooks::MetricsHook>().epoch_data().at("valid_accuracy") > 0.5 ? 0 : 1;
}
