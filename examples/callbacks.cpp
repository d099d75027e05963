// Watching a run and deciding about it.
#include <gradus/gradus.h>

#include <algorithm>
#include <iostream>
#include <limits>

class StopWhenFlat : public gradus::TrainerCallback {
 public:
  explicit StopWhenFlat(int patience) : patience_(patience) {}

  void on_log(const gradus::TrainingArguments&, gradus::TrainerState& state,
              gradus::TrainerControl& control, const gradus::CallbackContext& at) override {
    const auto loss = at.logs.find("loss");
    if (loss == at.logs.end()) return;
    flat_ = loss->second < best_ ? 0 : flat_ + 1;
    best_ = std::min(best_, loss->second);
    if (flat_ >= patience_) control.should_training_stop = true;
    if (control.should_training_stop)
      std::cout << "flat since " << flat_ << " logs, stopping at step " << state.global_step
                << '\n';
  }

  // state that a checkpoint keeps and a resume restores
  nlohmann::json state_dict() const override { return {{"best", best_}, {"flat", flat_}}; }
  void load_state_dict(const nlohmann::json& state) override {
    state.at("best").get_to(best_), state.at("flat").get_to(flat_);
  }

 private:
  int patience_, flat_ = 0;
  double best_ = std::numeric_limits<double>::max();
};

void add_callbacks(gradus::Trainer& trainer) {
  trainer.add_callback(std::make_shared<StopWhenFlat>(3));
  trainer.on(gradus::Event::step_end, gradus::every(100),
             [](const gradus::CallbackContext& at, gradus::TrainerControl& control) {
               std::cout << "step " << at.state.global_step << '\n';
               control.should_evaluate = true;
             });
}

int main() {
  auto model = gradus::make_model(
      torch::nn::Linear(4, 1), [](torch::nn::LinearImpl& linear, const gradus::Batch& batch) {
        return gradus::ModelOutput{
            {"loss", torch::mse_loss(linear.forward(batch["x"]), batch["labels"])}};
      });
  const auto x = torch::randn({128, 4});
  const auto data = gradus::from_tensors({{"x", x}, {"labels", x.sum(1, true)}});
  gradus::Trainer trainer({.model = model,
                           .args = {.output_dir = "runs/callbacks",
                                    .max_steps = 5000,
                                    .learning_rate = 1e-1,
                                    .logging_steps = 10,
                                    .save_strategy = "no"},
                           .train_dataset = data,
                           .eval_dataset = data});
  add_callbacks(trainer);
  return trainer.train().global_step < 5000 ? 0 : 1;
}
