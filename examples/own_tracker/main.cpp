// A tracker of one's own, by its name in report_to beside one that is built in.
#include <gradus/gradus.h>

#include <fstream>
#include <iostream>

#include "csv_tracker.h"

int main() try {
  gradus::register_tracker("losses", [](const std::filesystem::path& output_dir) {
    return std::make_shared<CsvTracker>(output_dir / "losses.csv");
  });
  std::filesystem::remove_all("runs/losses");
  const auto x = torch::randn({64, 4});
  auto model = gradus::make_model(
      torch::nn::Linear(4, 1), [](torch::nn::LinearImpl& linear, const gradus::Batch& batch) {
        return gradus::ModelOutput{
            {"loss", torch::mse_loss(linear.forward(batch["x"]), batch["labels"])}};
      });
  gradus::Trainer trainer(
      {.model = model,
       .args = {.output_dir = "runs/losses",
                .max_steps = 8,
                .logging_steps = 2,
                .report_to = {"losses", "jsonl"},
                .save_strategy = "no"},
       .train_dataset = gradus::from_tensors({{"x", x}, {"labels", x.sum(1, true)}})});
  trainer.train();
  int lines = 0;
  std::ifstream file("runs/losses/losses.csv");
  for (std::string line; std::getline(file, line); ++lines) std::cout << line << '\n';
  return lines == 5 && std::filesystem::exists("runs/losses/log.jsonl") ? 0 : 1;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
