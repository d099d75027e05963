// Any PyTorch model: exported once with Python (tools/export_model.py), trained here without it.
//
//   exported_model EXPORTED_DIR    a causal language model
#include <gradus/gradus.h>

#include <iostream>

int main(int argc, char** argv) try {
  if (argc < 2) return std::cerr << "usage: exported_model EXPORTED_DIR\n", 2;
  // The compiled steps, the weights, and what a batch must hold.
  auto model = gradus::ExportedModel::load(argv[1]);
  const auto vocabulary = model->config().at("vocab_size").get<int64_t>();
  const auto ids = torch::randint(vocabulary, {64, 24}, torch::kLong);
  gradus::Trainer trainer(
      {.model = model,
       .args = {.output_dir = "runs/exported",
                .per_device_train_batch_size = 8,
                .max_steps = 10,
                .learning_rate = 1e-3,
                .logging_steps = 1,
                .save_steps = 5},
       .train_dataset = gradus::from_tensors({{"input_ids", ids}, {"labels", ids}})});
  const auto result = trainer.train(gradus::Resume::last());
  // model.safetensors has the names that Python gave the parameters: load_state_dict takes it back.
  trainer.save_model("runs/exported/final");
  std::cout << "loss " << result.training_loss << '\n';
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
