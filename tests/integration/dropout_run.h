#pragma once

#include <ATen/Parallel.h>
#include <gradus/data/dataset.h>
#include <gradus/train/callbacks.h>
#include <gradus/train/trainer.h>
#include <torch/nn/modules/linear.h>

#include "../test_device.h"

/// A small run with everything that a resume must bring back: dropout, windows of 3 (the last of a
/// pass is short), the fp16 scaler, an average of the weights, early stopping, evaluations and a
/// warm-up.
namespace gradus::testing {

struct DropoutNet : Model {
  DropoutNet() {
    torch::manual_seed(5);
    first = register_module("first", torch::nn::Linear(8, 16));
    second = register_module("second", torch::nn::Linear(16, 3));
  }
  ModelOutput forward(const Batch& inputs, const ForwardOptions&) override {
    const auto logits = second->forward(
        torch::dropout(torch::relu(first->forward(inputs["x"])), 0.3, is_training()));
    return {{"loss", torch::cross_entropy_loss(logits.to(torch::kFloat), inputs["labels"])},
            {"logits", logits}};
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

inline std::shared_ptr<Dataset> class_rows(int64_t count, uint64_t seed) {
  torch::manual_seed(seed);
  const auto x = torch::randn({count, 8});
  return from_tensors({{"x", x}, {"labels", x.slice(1, 0, 3).argmax(1)}});
}

inline TrainingArguments dropout_arguments(const std::string& output_dir, int64_t save_steps) {
  TrainingArguments args{.output_dir = output_dir,
                         .per_device_train_batch_size = 5,
                         .max_steps = 60,
                         .learning_rate = 0.02,
                         .lr_scheduler_type = "cosine",
                         .warmup_steps = 10,
                         .gradient_accumulation_steps = 3,
                         .fp16 = true,
                         .logging_steps = 4,
                         .disable_tqdm = true,
                         .eval_strategy = "steps",
                         .eval_steps = 7,
                         .save_steps = save_steps,
                         .metric_for_best_model = "loss",
                         .greater_is_better = false,
                         .use_cpu = !on_gpu()};
  args.full_determinism = on_gpu();  // there the order of sums is not fixed otherwise
  if (on_gpu()) args.cuda_graphs = "on";
  return args;
}

inline TrainerOptions dropout_run(TrainingArguments args, int64_t patience = 100) {
  at::set_num_threads(1);
  return {.model = std::make_shared<DropoutNet>(),
          .args = std::move(args),
          .train_dataset = class_rows(100, 1),
          .eval_dataset = class_rows(30, 2),
          .callbacks = {std::make_shared<EmaCallback>(0.9),
                        std::make_shared<EarlyStoppingCallback>(patience)}};
}

}  // namespace gradus::testing
