// A train loader that loads the rows of `steps_per_generation` steps at once, and a training_step
// that takes its share of them.
#include <gradus/gradus.h>

#include <iostream>

class GenerationTrainer : public gradus::Trainer {
 public:
  GenerationTrainer(gradus::TrainerOptions options, int64_t steps_per_generation)
      : Trainer(std::move(options)), steps_per_generation_(steps_per_generation) {}

  int64_t rows_loaded = 0, rows_trained = 0;

 protected:
  gradus::DataLoader get_train_dataloader() override {
    auto options = train_dataloader_options();    // what the base class would use
    options.batch_size *= steps_per_generation_;  // the only change
    return gradus::DataLoader(std::move(options));
  }

  torch::Tensor training_step(gradus::Model& model, gradus::Batch inputs,
                              std::optional<torch::Tensor> num_items_in_batch) override {
    rows_loaded = inputs.rows();
    const auto share = rows_loaded / steps_per_generation_;
    gradus::Batch part;  // here one would generate from all rows, and train on this step's part
    for (const auto& [name, tensor] : inputs) part.set(name, tensor.slice(0, 0, share));
    rows_trained = part.rows();
    return Trainer::training_step(model, std::move(part), num_items_in_batch);
  }

 private:
  int64_t steps_per_generation_;
};

int main() try {
  auto model = gradus::make_model(
      torch::nn::Linear(4, 1), [](torch::nn::LinearImpl& linear, const gradus::Batch& batch) {
        return gradus::ModelOutput{
            {"loss", torch::mse_loss(linear.forward(batch["x"]), batch["labels"])}};
      });
  const auto x = torch::randn({128, 4});
  GenerationTrainer trainer(
      {.model = model,
       .args = {.output_dir = "runs/generation",
                .per_device_train_batch_size = 4,
                .num_train_epochs = 1,
                .save_strategy = "no"},
       .train_dataset = gradus::from_tensors({{"x", x}, {"labels", x.sum(1, true)}})},
      /*steps_per_generation=*/8);
  const auto result = trainer.train();
  return result.global_step == 4 && trainer.rows_loaded == 32 && trainer.rows_trained == 4 ? 0 : 1;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
