// A model with two kinds of labels: label_names says which columns they are; metrics see both.
#include <gradus/gradus.h>

#include <iostream>

struct SpanModel : gradus::Model {
  SpanModel() { register_module("head", head); }
  gradus::ModelOutput forward(const gradus::Batch& inputs, const gradus::ForwardOptions&) override {
    const auto logits = head->forward(inputs["x"]).chunk(2, 1);
    gradus::ModelOutput out;
    if (inputs.contains("start_positions"))
      out.set("loss", (torch::cross_entropy_loss(logits[0], inputs["start_positions"]) +
                       torch::cross_entropy_loss(logits[1], inputs["end_positions"])) /
                          2);
    out.set("start_logits", logits[0]);
    out.set("end_logits", logits[1]);
    return out;
  }
  std::vector<std::string> label_names() const override {
    return {"start_positions", "end_positions"};
  }
  torch::nn::Linear head{8, 8};
};

int main() try {
  torch::manual_seed(0);
  const auto x = torch::randn({256, 8});
  const auto parts = x.chunk(2, 1);
  const auto data = gradus::from_tensors(
      {{"x", x}, {"start_positions", parts[0].argmax(1)}, {"end_positions", parts[1].argmax(1)}});
  gradus::Trainer trainer(
      {.model = std::make_shared<SpanModel>(),
       .args = {.output_dir = "runs/spans",
                .num_train_epochs = 8,
                .learning_rate = 0.05,
                .logging_steps = 50,
                .save_strategy = "no"},
       .train_dataset = data,
       .eval_dataset = data,
       .compute_metrics = [](const gradus::EvalPrediction& p) -> gradus::Metrics {
         const auto hit = [&](size_t i) {
           return p.prediction_parts[i].argmax(-1).eq(p.label_parts[i]);
         };
         return {
             {"exact_match", hit(0).logical_and(hit(1)).to(torch::kDouble).mean().item<double>()}};
       }});
  trainer.train();
  const auto metrics = trainer.evaluate();
  trainer.log_metrics("eval", metrics);
  return metrics.at("eval_exact_match") > 0.8 ? 0 : 1;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
