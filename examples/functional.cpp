// The functional trainer: the state is a value, a step is a pure function of (state, key, batch).
#include <gradus/gradus.h>

namespace fn = gradus::functional;

int main() {
  const auto args = fn::Args{.logging_steps = 8,
                             .save_steps = 16,
                             .batch_size_per_device = 16,
                             .max_epochs = 4,
                             .lr = 1e-1,
                             .warmup_steps = 4,
                             .weight_decay = 0.01,
                             .save_dir = "runs/functional"};
  auto model = gradus::wrap(torch::nn::Linear(4, 1),
                            [](torch::nn::LinearImpl& linear, const gradus::Batch& batch) {
                              return linear.forward(batch["x"]);
                            });

  const auto loss_fn = [](const torch::Tensor& prediction, const gradus::Batch& batch) {
    return torch::mse_loss(prediction, batch["y"]);
  };
  const auto train_step = [](const fn::TrainState& state, fn::Key key,
                             const gradus::Batch& batch) -> fn::StepResult {
    const auto [loss, grads] = fn::value_and_grad(state, key, batch);
    return {.state = state.apply_gradients(grads), .metrics = {{"loss", loss}}, .key = key.split()};
  };
  const auto val_step = [](const fn::TrainState& state,
                           const gradus::Batch& batch) -> fn::TensorMetrics {
    return {{"loss", fn::loss(state, batch)}};
  };

  const auto x = torch::randn({256, 4});
  const auto data = gradus::from_tensors({{"x", x}, {"y", x.sum(1, true)}});
  const int64_t steps = args.max_epochs * (data->size() / args.batch_size_per_device);
  const auto schedule = fn::join(fn::linear(args.init_lr, args.lr, args.warmup_steps),
                                 fn::linear(args.lr, 1e-7, steps - args.warmup_steps));

  fn::Trainer trainer({.args = args,
                       .data_collator = gradus::default_data_collator,
                       .train_step_fn = train_step,
                       .val_step_fn = val_step,
                       .model_save_fn = fn::save_flax_model,
                       .logger = gradus::jsonl_logger("runs/functional/log.jsonl"),
                       .scheduler_fn = schedule});
  auto state = trainer.create_state(model, fn::adamw(schedule, {.weight_decay = args.weight_decay}),
                                    steps, {.loss_fn = loss_fn});
  state = trainer.train(state, data, data);
  trainer.save_checkpoint("runs/functional/last", state);
  return trainer.evaluate(state, data) < 0.5 ? 0 : 1;
}
