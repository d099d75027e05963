// bench_train_step MODE [STEPS]: one line of JSON for benchmarks/train_step.py.
//   trainer   gradus::Trainer on the 2-parameter regression model, microseconds per step
//   plain     a hand-written LibTorch loop that does the same work: collate, clip, schedule, sum
//   the loss, fused AdamW first     seconds from process start to the end of the first step (the
//   caller takes the time) save DIR  30 M parameters with AdamW: how long a checkpoint holds
//   training up, in seconds history DIR ENTRIES  the same for the 2-parameter model with a log of
//   so many entries
#include <ATen/Parallel.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <gradus/core/log.h>
#include <gradus/data/dataset.h>
#include <gradus/train/callbacks.h>
#include <gradus/train/trainer.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <filesystem>
#include <iostream>

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr int64_t kRows = 64, kBatch = 8;

struct Regression : gradus::Model {
  Regression()
      : a(register_parameter("a", torch::zeros({}))),
        b(register_parameter("b", torch::zeros({}))) {}
  gradus::ModelOutput forward(const gradus::Batch& inputs, const gradus::ForwardOptions&) override {
    const auto y = inputs["input_x"] * a + b;
    return {{"loss", torch::mse_loss(y, inputs["labels"])}, {"logits", y}};
  }
  torch::Tensor a, b;
};

struct Rows : gradus::Dataset {
  Rows() : x(torch::randn({kRows})), y(2 * x + 3) {}
  int64_t size() const override { return kRows; }
  gradus::Example get(int64_t i) const override {
    return {{"input_x", double(x.const_data_ptr<float>()[i])},
            {"labels", double(y.const_data_ptr<float>()[i])}};
  }
  torch::Tensor x, y;
};

gradus::TrainingArguments arguments(int64_t steps) {
  return {.output_dir = (std::filesystem::temp_directory_path() / "gradus_bench_step").string(),
          .per_device_train_batch_size = kBatch,
          .max_steps = steps,
          .learning_rate = 1e-3,
          .logging_steps = 500,
          .disable_tqdm = true,
          .save_strategy = "no",
          .use_cpu = true};
}

double trainer_step(int64_t steps) {
  gradus::Trainer trainer({.model = std::make_shared<Regression>(),
                           .args = arguments(steps),
                           .train_dataset = std::make_shared<Rows>()});
  Clock::time_point begin;
  trainer.on(gradus::Event::step_end,
             [&](const gradus::CallbackContext& at, gradus::TrainerControl&) {
               if (at.state.global_step == 100) begin = Clock::now();  // past the warm-up
             });
  trainer.train();
  return seconds_since(begin) / double(steps - 100) * 1e6;
}

double plain_step(int64_t steps) {
  const Rows rows;
  Regression model;
  std::vector<torch::Tensor> params = {model.a, model.b}, m, v, counts;
  for (const auto& p : params) {
    m.push_back(torch::zeros_like(p).detach());
    v.push_back(torch::zeros_like(p).detach());
    counts.push_back(torch::zeros({}));
  }
  auto total = torch::zeros({});
  Clock::time_point begin;
  torch::Tensor order;
  for (int64_t step = 0; step < steps; ++step) {
    if (step == 100) begin = Clock::now();
    if (step % (kRows / kBatch) == 0) order = torch::randperm(kRows);
    std::vector<torch::Tensor> xs, ys;
    for (int64_t i = 0; i < kBatch; ++i) {
      const auto row =
          rows.get(order.const_data_ptr<int64_t>()[step % (kRows / kBatch) * kBatch + i]);
      xs.push_back(torch::tensor(float(row.at("input_x").number())));
      ys.push_back(torch::tensor(float(row.at("labels").number())));
    }
    const gradus::Batch batch{{"input_x", torch::stack(xs)}, {"labels", torch::stack(ys)}};
    const auto loss = model.forward(batch, {}).loss();
    loss.backward();
    const torch::NoGradGuard no_grad;
    total += loss.detach();
    std::vector<torch::Tensor> grads = {params[0].grad(), params[1].grad()};
    const auto norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(grads, 2)), 2);
    at::_foreach_mul_(grads, (1.0 / (norm + 1e-6)).clamp_max(1.0));
    for (auto& count : counts) count += 1;
    const double lr = 1e-3 * double(steps - step) / double(steps);
    at::_fused_adamw_(params, grads, m, v, {}, counts, lr, 0.9, 0.999, 0.0, 1e-8, false, false,
                      std::nullopt, std::nullopt);
    for (auto& p : params) p.mutable_grad().reset();
    if (step % 500 == 499) total.zero_();
  }
  return seconds_since(begin) / double(steps - 100) * 1e6;
}

// A model of 30 M parameters; training waits while a snapshot is taken, not while it is written.
double save_pause(const std::string& folder) {
  auto model =
      gradus::make_model(torch::nn::Linear(torch::nn::LinearOptions(5477, 5477)),
                         [](torch::nn::LinearImpl& linear, const gradus::Batch& batch) {
                           return gradus::ModelOutput{{"loss", linear.forward(batch["x"]).mean()}};
                         });
  auto args = arguments(9);
  args.output_dir = folder;
  args.per_device_train_batch_size = 1;
  args.save_strategy = "steps";
  args.save_steps = 3;
  args.save_total_limit = 1;
  gradus::Trainer trainer(
      {.model = model,
       .args = args,
       .train_dataset = gradus::from_tensors({{"x", torch::randn({16, 5477})}})});
  std::vector<double> pauses;
  Clock::time_point before;
  trainer.on(gradus::Event::step_end, [&](const gradus::CallbackContext&, gradus::TrainerControl&) {
    before = Clock::now();
  });
  trainer.on(gradus::Event::save, [&](const gradus::CallbackContext&, gradus::TrainerControl&) {
    pauses.push_back(seconds_since(before));
    trainer.wait_for_saves();  // each save is measured alone
  });
  trainer.train();
  std::sort(pauses.begin(), pauses.end());
  return pauses[pauses.size() / 2];
}

// The 2-parameter model with a log of `entries`: what a save costs the training thread.
double save_pause_with_log(const std::string& folder, int64_t entries) {
  auto args = arguments(18);
  args.output_dir = folder;
  args.save_strategy = "steps";
  args.save_steps = 2;
  args.save_total_limit = 1;
  gradus::Trainer trainer({.model = std::make_shared<Regression>(),
                           .args = args,
                           .train_dataset = std::make_shared<Rows>()});
  std::vector<double> pauses;
  Clock::time_point before;
  trainer.on(
      gradus::Event::step_begin, [&](const gradus::CallbackContext& at, gradus::TrainerControl&) {
        if (at.state.global_step != 0) return;
        for (int64_t i = 0; i < entries; ++i)
          trainer.state().log_history.push_back(gradus::log_entry({{"loss", 1.0 / double(i + 1)},
                                                                   {"grad_norm", 0.1 * double(i)},
                                                                   {"learning_rate", 1e-3},
                                                                   {"epoch", 1e-6 * double(i)}},
                                                                  i));
      });
  trainer.on(gradus::Event::step_end, [&](const gradus::CallbackContext&, gradus::TrainerControl&) {
    before = Clock::now();
  });
  trainer.on(gradus::Event::save, [&](const gradus::CallbackContext&, gradus::TrainerControl&) {
    pauses.push_back(seconds_since(before));
    trainer.wait_for_saves();
  });
  trainer.train();
  std::sort(pauses.begin(), pauses.end());
  return pauses[pauses.size() / 2];
}

class Silent : public gradus::LogSink {
  void message(gradus::LogLevel, std::string_view) override {}
  void print(std::string_view) override {}
};

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  gradus::set_log_sink(std::make_shared<Silent>());
  if (mode == "trainer" || mode == "plain") {
    at::set_num_threads(1);
    const int64_t steps = argc > 2 ? std::stoll(argv[2]) : 20000;
    std::cout << fmt::format("{{\"microseconds\": {:.3f}}}\n",
                             mode == "trainer" ? trainer_step(steps) : plain_step(steps));
  } else if (mode == "first") {
    gradus::Trainer trainer({.model = std::make_shared<Regression>(),
                             .args = arguments(1),
                             .train_dataset = std::make_shared<Rows>()});
    trainer.train();
  } else if (mode == "save" && argc > 2) {
    std::cout << fmt::format("{{\"seconds\": {:.4f}}}\n", save_pause(argv[2]));
  } else if (mode == "history" && argc > 3) {
    std::cout << fmt::format("{{\"seconds\": {:.6f}}}\n",
                             save_pause_with_log(argv[2], std::stoll(argv[3])));
  } else {
    std::cerr << "usage: bench_train_step trainer|plain [STEPS] | first | save DIR | history DIR "
                 "ENTRIES\n";
    return 2;
  }
}
