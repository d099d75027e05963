// trainers_run hooks|functional FOLDER BATCH [FAULT]: the hook trainer with AccelerateHook, or the
// functional trainer, alone or as one of several processes, for processes.py.
//
// BATCH is the rows of a batch of this process. Writes FOLDER/result-RANK.json: the losses of the
// steps, the weights, what was counted. With FAULT process 1 throws in its fifth step.
#include <gradus/gradus.h>

#include <iostream>

namespace fn = gradus::functional;
namespace hooks = gradus::hooks;

namespace {

std::vector<double> numbers(const std::vector<torch::Tensor>& tensors) {
  std::vector<double> found;
  for (const auto& tensor : tensors) {
    const auto flat = tensor.detach().to(torch::kDouble).contiguous().flatten();
    found.insert(found.end(), flat.const_data_ptr<double>(),
                 flat.const_data_ptr<double>() + flat.numel());
  }
  return found;
}

struct Rows {
  Rows() {
    torch::manual_seed(5);
    x = torch::randn({48, 4});
    y = x.sum(1, true).sin();
  }
  torch::Tensor x, y;
};

auto make_net() {
  torch::manual_seed(6);
  return std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(4, 16), torch::nn::Tanh(),
                                                     torch::nn::Linear(16, 1));
}

void fail_at(int64_t step, int64_t rank, bool is_asked) {
  if (is_asked && rank == 1 && step == 5) throw std::runtime_error("a bad row");
}

nlohmann::json with_hooks(const std::string& folder, int64_t batch, bool fails) {
  const Rows rows;
  const auto net = make_net();
  const auto accelerate = std::make_shared<hooks::AccelerateHook>(hooks::AccelerateOptions{
      .gradient_accumulation_steps = 2, .max_grad_norm = 0.05, .cpu = true, .timeout_seconds = 20});
  const auto rank = accelerate->accelerator().process_index;
  std::vector<double> losses;
  const auto note = [&](hooks::Trainer& trainer) {
    auto loss = trainer.loss_t().detach().clone();
    if (const auto& group = trainer.accelerator()->group) {
      group->sum(loss);
      loss /= double(group->size());
    }
    losses.push_back(loss.item<double>());
    fail_at(int64_t(losses.size()), rank, fails);
  };
  auto loader = gradus::tensor_loader({{"x", rows.x}, {"y", rows.y}},
                                      {.batch_size = batch, .shuffle = true, .seed = 1});
  hooks::Trainer trainer(
      {.model = net,
       .train_step = [&](const gradus::Batch& one, hooks::Trainer&) -> hooks::Result {
         return {{"loss", torch::mse_loss(net->forward(one["x"]), one["y"])}};
       },
       .train_dl = loader,
       .valid_dl = loader,
       .optim =
           std::make_shared<gradus::AdamW>(net->parameters(), gradus::AdamWOptions{.lr = 1e-2}),
       .epochs = 3,
       .hooks = {accelerate,
                 std::make_shared<hooks::CheckpointHook>(hooks::CheckpointOptions{
                     .save_dir = folder + "/saved", .save_every_steps = 3}),
                 std::make_shared<hooks::LambdaHook>(hooks::Point::after_step, note)}});
  trainer.fit();
  return {{"losses", losses},
          {"weights", numbers(net->parameters())},
          {"steps", trainer.step_state().optimizer_step},
          {"samples", trainer.step_state().samples_seen},
          {"rank", rank}};
}

nlohmann::json functional_run(const std::string& folder, int64_t batch, bool fails) {
  const Rows rows;
  const auto net = make_net();
  const auto rank = gradus::launch_environment().rank;
  auto model = gradus::wrap(torch::nn::Sequential(net),
                            [](torch::nn::SequentialImpl& all, const gradus::Batch& one) {
                              return all.forward(one["x"]);
                            });
  const auto data = gradus::from_tensors({{"x", rows.x}, {"y", rows.y}});
  std::vector<double> losses;
  fn::Trainer trainer({.args = {.logging_steps = 2,
                                .save_steps = 4,
                                .batch_size_per_device = batch,
                                .max_epochs = 3,
                                .lr = 1e-2,
                                .warmup_steps = 3,
                                .save_dir = folder + "/saved"},
                       .train_step_fn =
                           [&](const fn::TrainState& state, fn::Key key, const gradus::Batch& one) {
                             auto result = fn::train_step(state, key, one);
                             losses.push_back(result.metrics.at("loss").item<double>());
                             fail_at(int64_t(losses.size()), rank, fails);
                             return result;
                           },
                       .logger = gradus::jsonl_logger(folder + "/log.jsonl"),
                       .show_progress = false});
  auto state = trainer.create_state(
      model, {}, 18, {.loss_fn = [](const torch::Tensor& y, const gradus::Batch& one) {
        return torch::mse_loss(y, one["y"]);
      }});
  state = trainer.train(state, data, data);
  losses.push_back(trainer.evaluate(state, data));
  return {{"losses", losses},
          {"weights", numbers(state.params.values())},
          {"steps", state.step},
          {"samples", 0},
          {"rank", rank}};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) return 2;
  const std::string kind = argv[1], folder = argv[2];
  const auto batch = std::stoll(argv[3]);
  const auto found = kind == "hooks" ? with_hooks(folder, batch, argc > 4)
                                     : functional_run(folder, batch, argc > 4);
  gradus::write_file_atomically(
      folder + "/result-" + std::to_string(found["rank"].get<int64_t>()) + ".json",
      gradus::dump_json(found, 1));
  return 0;
} catch (const std::exception& error) {
  std::cerr << "trainers_run: " << error.what() << std::endl;
  return 1;
}
