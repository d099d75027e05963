// A loss of one's own by overriding compute_loss: cross entropy with smoothed labels.
#include <gradus/gradus.h>

#include <iostream>

class SmoothTrainer : public gradus::Trainer {
 public:
  using Trainer::Trainer;

 protected:
  gradus::Loss compute_loss(gradus::Model& model, gradus::Batch inputs,
                            std::optional<torch::Tensor>) override {
    const auto labels = inputs.pop("labels");  // the model then makes no loss of its own
    auto outputs = model.forward(inputs);
    const auto options = torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(0.1);
    return {.loss = torch::nn::functional::cross_entropy(outputs["logits"], labels, options),
            .outputs = outputs};
  }
};

int main() try {
  auto model = gradus::make_model(
      torch::nn::Linear(4, 3), [](torch::nn::LinearImpl& linear, const gradus::Batch& batch) {
        return gradus::ModelOutput{{"logits", linear.forward(batch["x"])}};
      });
  torch::manual_seed(0);
  const auto x = torch::randn({256, 4});
  const auto data = gradus::from_tensors({{"x", x}, {"labels", x.slice(1, 0, 3).argmax(1)}});
  SmoothTrainer trainer(
      {.model = model,
       .args = {.output_dir = "runs/smooth",
                .num_train_epochs = 5,
                .learning_rate = 0.05,
                .logging_steps = 20,
                .save_strategy = "no"},
       .train_dataset = data,
       .eval_dataset = data,
       .compute_metrics = [](const gradus::EvalPrediction& p) -> gradus::Metrics {
         return {
             {"accuracy",
              p.predictions.argmax(-1).eq(p.label_ids).to(torch::kDouble).mean().item<double>()}};
       }});
  trainer.train();
  const auto metrics =
      trainer.evaluate();  // the same loss; accuracy from the logits compute_loss gave back
  trainer.log_metrics("eval", metrics);
  return metrics.at("eval_accuracy") > 0.9 ? 0 : 1;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
