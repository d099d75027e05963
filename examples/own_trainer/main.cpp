// A trainer of one's own with arguments and flags of its own: `own_trainer --focal_gamma 1`.
// --help lists them after those of TrainingArguments.
#include <gradus/gradus.h>

#include <iostream>

#include "focal_trainer.h"

int main(int argc, char** argv) try {
  gradus::register_trainer<FocalTrainer, FocalArguments>("FocalTrainer");  // for tasks to name
  const auto args = gradus::parse_args<FocalArguments>(
      argc, argv, {.output_dir = "runs/focal", .num_train_epochs = 5, .focal_gamma = 3});
  torch::manual_seed(0);
  const auto x = torch::randn({256, 4});
  const auto data = gradus::from_tensors({{"x", x}, {"labels", x.slice(1, 0, 3).argmax(1)}});
  auto model = gradus::make_model(
      torch::nn::Linear(4, 3), [](torch::nn::LinearImpl& linear, const gradus::Batch& batch) {
        return gradus::ModelOutput{{"logits", linear.forward(batch["x"])}};
      });
  FocalTrainer trainer(
      {.model = model,
       .args = args,
       .train_dataset = data,
       .eval_dataset = data,
       .compute_metrics = [](const gradus::EvalPrediction& p) -> gradus::Metrics {
         return {
             {"accuracy",
              p.predictions.argmax(-1).eq(p.label_ids).to(torch::kDouble).mean().item<double>()}};
       }});
  trainer.train();
  const auto metrics = trainer.evaluate();
  trainer.log_metrics("eval", metrics);
  return metrics.at("eval_accuracy") > 0.9 ? 0 : 1;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
