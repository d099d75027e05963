// An optimizer of one's own: --optim knows it, checkpoints keep its state, and settings that are
// changed on resume take effect.
#include <gradus/gradus.h>

#include <iostream>

#include "sign_sgd.h"

namespace {

std::unique_ptr<gradus::Trainer> train(std::vector<const char*> flags, gradus::Resume resume) {
  flags.insert(flags.begin(), "own_optimizer");
  const auto args = gradus::parse_args(int(flags.size()), flags.data(),
                                       {.output_dir = "runs/sign_sgd",
                                        .max_steps = 60,
                                        .learning_rate = 0.1,
                                        .optim = "sign_sgd",
                                        .logging_steps = 20,
                                        .save_steps = 30});
  torch::manual_seed(0);
  const auto x = torch::randn({256, 4});
  auto model = gradus::make_model(
      torch::nn::Linear(4, 1), [](torch::nn::LinearImpl& linear, const gradus::Batch& batch) {
        return gradus::ModelOutput{
            {"loss", torch::mse_loss(linear.forward(batch["x"]), batch["labels"])}};
      });
  auto trainer = std::make_unique<gradus::Trainer>(gradus::TrainerOptions{
      .model = model,
      .args = args,
      .train_dataset = gradus::from_tensors({{"x", x}, {"labels", x.sum(1, true)}})});
  trainer->train(resume);
  return trainer;
}

double momentum_of(const gradus::Trainer& trainer) {
  const auto state = trainer.optimizer()->state_dict();
  return state.at("param_groups").items().front().at("momentum").as_double();
}

}  // namespace

int main() try {
  gradus::register_optimizer(SignSGD::entry());
  const auto first = train({"--optim_args", "momentum=0.5"}, gradus::Resume::none());
  const auto second =
      train({"--optim_args", "momentum=0.75"}, gradus::Resume::from("runs/sign_sgd/checkpoint-30"));
  const auto loss = first->state().log_history.at(2).at("loss").get<double>();
  std::cout << "loss " << loss << ", momentum " << momentum_of(*first) << ", then "
            << momentum_of(*second) << '\n';
  return loss < 0.1 && momentum_of(*first) == 0.5 && momentum_of(*second) == 0.75 ? 0 : 1;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
