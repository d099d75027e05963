// The state is a value and a step is a function: two seeds trained side by side from one state, and
// the better one goes on.
#include <gradus/gradus.h>

#include <iostream>

namespace fn = gradus::functional;

namespace {

/// A step of our own: the plain one with a penalty on large weights.
fn::StepResult penalized_step(const fn::TrainState& state, fn::Key key,
                              const gradus::Batch& batch) {
  const auto [loss, grads] = fn::value_and_grad(state, key, batch);
  auto values = grads.values();
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = values[i] + 1e-4 * state.params.values()[i].sign();
  return {.state = state.apply_gradients(grads.with(std::move(values))),
          .metrics = {{"loss", loss}},
          .key = key.split()};
}

}  // namespace

int main() try {
  torch::manual_seed(0);
  auto net = torch::nn::Sequential(torch::nn::Linear(2, 32), torch::nn::ReLU(),
                                   torch::nn::Dropout(0.1), torch::nn::Linear(32, 1));
  const auto model =
      gradus::wrap(net, [](torch::nn::SequentialImpl& net, const gradus::Batch& batch) {
        return net.forward(batch["x"]);
      });
  const auto x = torch::randn({512, 2});
  const auto data =
      gradus::from_tensors({{"x", x}, {"y", (x.prod(1, true) > 0).to(torch::kFloat)}});

  const fn::Args args{.logging_steps = 16,
                      .save_steps = 32,
                      .batch_size_per_device = 16,
                      .max_epochs = 6,
                      .lr = 2e-2,
                      .warmup_steps = 10,
                      .save_dir = "runs/xor"};
  const int64_t steps = args.max_epochs * (data->size() / args.batch_size_per_device);
  fn::Trainer trainer({.args = args,
                       .train_step_fn = penalized_step,
                       .logger = gradus::jsonl_logger("runs/xor.jsonl")});
  const auto tx = fn::chain(fn::clip_by_global_norm(1.0), fn::build_tx(args, steps));
  const auto loss_fn = [](const torch::Tensor& logits, const gradus::Batch& batch) {
    return torch::binary_cross_entropy_with_logits(logits, batch["y"]);
  };

  // One start, two keys: nothing of the first run is left in the second.
  auto start = trainer.create_state(model, tx, steps, {.loss_fn = loss_fn});
  const auto first = trainer.train(start, data, data);
  start.key = fn::Key(1);
  const auto second = trainer.train(start, data, data);
  const double losses[] = {trainer.evaluate(first, data), trainer.evaluate(second, data)};
  std::cout << "eval loss " << losses[0] << " and " << losses[1] << '\n';
  const auto& best = losses[0] < losses[1] ? first : second;
  trainer.save_checkpoint("runs/xor-best", best);

  // Flax reads flax_model.msgpack; so do we.
  const auto again =
      trainer.create_state(model, tx, steps, {.loss_fn = loss_fn, .ckpt_dir = "runs/xor-best"});
  const bool equal = trainer.evaluate(again, data) == std::min(losses[0], losses[1]);
  return std::min(losses[0], losses[1]) < 0.45 && losses[0] != losses[1] && equal ? 0 : 1;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
