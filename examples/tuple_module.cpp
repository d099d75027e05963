// A plain torch module, written for no trainer, that returns a tuple: make_model says what its
// parts are.
#include <gradus/gradus.h>

#include <iostream>

struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl() {
    register_module("body", body);
    register_module("mean", mean);
    register_module("log_variance", log_variance);
  }
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) {
    const auto hidden = torch::tanh(body->forward(x));
    return {mean->forward(hidden), log_variance->forward(hidden)};
  }
  torch::nn::Linear body{2, 16}, mean{16, 1}, log_variance{16, 1};
};
TORCH_MODULE(TwoHeads);

int main() try {
  auto model = gradus::make_model(TwoHeads(), [](TwoHeadsImpl& module, const gradus::Batch& batch) {
    const auto [mean, log_variance] = module.forward(batch["x"]);
    gradus::ModelOutput out;
    if (const auto* y = batch.find("labels"))  // the likelihood of a normal distribution
      out.set("loss", (log_variance + (*y - mean).pow(2) / log_variance.exp()).mean() / 2);
    out.set("mean", mean);
    out.set("log_variance", log_variance);
    return out;
  });
  torch::manual_seed(0);
  const auto x = torch::randn({512, 2});
  const auto data =
      gradus::from_tensors({{"x", x}, {"labels", x.sum(1, true) + 0.1 * torch::randn({512, 1})}});
  gradus::Trainer trainer({.model = model,
                           .args = {.output_dir = "runs/tuple",
                                    .num_train_epochs = 6,
                                    .learning_rate = 0.02,
                                    .logging_steps = 100,
                                    .save_strategy = "no"},
                           .train_dataset = data});
  trainer.train();
  const auto found = trainer.predict(
      data);  // both outputs, in the module's order; files hold the module's own names
  const auto error = (found.prediction_parts[0] - found.label_ids).abs().mean().item<double>();
  std::cout << "mean error " << error << '\n';
  return error < 0.3 && model->state_dict().contains("body.weight") ? 0 : 1;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
