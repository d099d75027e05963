// A callback that stops the run, with state that a checkpoint keeps and a resume brings back.
#include <gradus/gradus.h>

#include <iostream>
#include <limits>

class StopWhenFlat : public gradus::TrainerCallback {
 public:
  explicit StopWhenFlat(int patience) : patience_(patience) {}

  void on_log(const gradus::TrainingArguments&, gradus::TrainerState& state,
              gradus::TrainerControl& control, const gradus::CallbackContext& at) override {
    const auto loss = at.logs.find("loss");
    if (loss == at.logs.end()) return;  // an evaluation or the summary at the end
    flat_ = loss->second < best_ ? 0 : flat_ + 1;
    best_ = std::min(best_, loss->second);
    if (flat_ < patience_) return;
    control.should_training_stop = true;
    control.should_save = true;
    std::cout << "no better loss for " << flat_ << " logs: stopping at step " << state.global_step
              << '\n';
  }

  nlohmann::json state_dict() const override { return {{"best", best_}, {"flat", flat_}}; }
  void load_state_dict(const nlohmann::json& state) override {
    best_ = state.at("best");
    flat_ = state.at("flat");
  }

 private:
  int patience_, flat_ = 0;
  double best_ = std::numeric_limits<double>::max();
};

int main() try {
  auto model = gradus::make_model(
      torch::nn::Linear(4, 1), [](torch::nn::LinearImpl& linear, const gradus::Batch& batch) {
        return gradus::ModelOutput{
            {"loss", torch::mse_loss(linear.forward(batch["x"]), batch["labels"])}};
      });
  torch::manual_seed(0);
  const auto x = torch::randn({128, 4});
  gradus::Trainer trainer(
      {.model = model,
       .args = {.output_dir = "runs/stopping",
                .max_steps = 5000,
                .learning_rate = 0.1,
                .logging_steps = 10},
       .train_dataset = gradus::from_tensors(
           {{"x", x}, {"labels", x.sum(1, true) + 0.1 * torch::randn({128, 1})}}),
       .callbacks = {std::make_shared<StopWhenFlat>(3)}});
  const auto result = trainer.train();
  return result.global_step < 5000 ? 0 : 1;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
