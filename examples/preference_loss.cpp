// A preference loss (DPO) with a frozen reference model, in one override of compute_loss.
#include <gradus/gradus.h>

#include <iostream>

class PreferenceTrainer : public gradus::Trainer {
 public:
  PreferenceTrainer(gradus::TrainerOptions options, std::shared_ptr<gradus::Model> reference,
                    double beta)
      : Trainer(std::move(options)), reference_(std::move(reference)), beta_(beta) {
    reference_->to(device());
    reference_->eval();
  }

 protected:
  gradus::Loss compute_loss(gradus::Model& model, gradus::Batch inputs,
                            std::optional<torch::Tensor>) override {
    auto outputs = model.forward(inputs);
    const auto chosen = inputs["chosen"], rejected = inputs["rejected"];
    const auto log_ratio = [&](const torch::Tensor& logits) {  // log p(chosen) - log p(rejected)
      const auto log_probs = logits.log_softmax(-1);
      return (log_probs.gather(1, chosen.unsqueeze(1)) - log_probs.gather(1, rejected.unsqueeze(1)))
          .squeeze(1);
    };
    const auto reference = [&] {
      torch::NoGradGuard frozen;
      return log_ratio(reference_->forward(inputs)["logits"]);
    }();
    return {.loss = -torch::log_sigmoid(beta_ * (log_ratio(outputs["logits"]) - reference)).mean(),
            .outputs = outputs};
  }

 private:
  std::shared_ptr<gradus::Model> reference_;
  double beta_;
};

int main() try {
  const auto make =
      [] {  // any model that gives logits: here one layer from a prompt's features to eight answers
        return gradus::make_model(
            torch::nn::Linear(4, 8), [](torch::nn::LinearImpl& linear, const gradus::Batch& batch) {
              return gradus::ModelOutput{{"logits", linear.forward(batch["x"])}};
            });
      };
  auto policy = make(), reference = make();
  reference->load_state_dict(policy->state_dict());
  const auto chosen = torch::randint(0, 8, {256}, torch::kLong);
  const auto data = gradus::from_tensors({{"x", torch::randn({256, 4})},
                                          {"chosen", chosen.remainder(4)},
                                          {"rejected", 4 + chosen.remainder(4)}});
  PreferenceTrainer trainer({.model = policy,
                             .args = {.output_dir = "runs/preference",
                                      .num_train_epochs = 5,
                                      .learning_rate = 0.05,
                                      .logging_steps = 40,
                                      .save_strategy = "no"},
                             .train_dataset = data},
                            reference, /*beta=*/0.5);
  return trainer.train().training_loss < 0.69 ? 0 : 1;  // log 2 is what no preference costs
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
