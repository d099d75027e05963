#pragma once

#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/hooks/trainer.h>
#include <gradus/optim/sgd.h>
#include <torch/nn/modules/linear.h>

#include <ATen/ops/mse_loss.h>

#include <filesystem>
#include <string>

#include "../../default_signals.h"

namespace gradus::hooks {

/// A regression with one layer and fixed weights.
struct SmallRun {
  std::shared_ptr<torch::nn::LinearImpl> net;
  std::shared_ptr<Optimizer> optim;
  StepFunction step;

  /// `count` batches of four rows.
  DataLoader batches(int64_t count) const {
    const auto x = torch::arange(8.0 * double(count)).reshape({-1, 2}) / 10;
    return tensor_loader({{"x", x}, {"y", x.sum(1, true)}}, {.batch_size = 4});
  }
};

inline SmallRun small_run(double lr = 0.01) {
  SmallRun run;
  run.net = std::make_shared<torch::nn::LinearImpl>(2, 1);
  {
    const torch::NoGradGuard no_grad;
    run.net->weight.fill_(0.5);
    run.net->bias.fill_(0.1);
  }
  run.optim = std::make_shared<SGD>(run.net->parameters(), SGDOptions{.lr = lr});
  run.step = [net = run.net](const Batch& batch, Trainer&) -> Result {
    const auto output = net->forward(batch["x"]);
    return {{"loss", at::mse_loss(output, batch["y"])}, {"preds", output.squeeze(1)}};
  };
  return run;
}

/// Writes down every call.
struct Recorder : Hook {
  std::string text;
  void run(Point point, Trainer&) override { text += std::string(point_name(point)) + " "; }
};

struct TextSink : LogSink {
  std::string text, lines;
  void message(LogLevel, std::string_view line) override { lines += std::string(line) + "\n"; }
  void print(std::string_view more) override { text += more; }
};

/// The message of the `Error` that `action` throws; empty when it throws none.
template <class F>
std::string message_of(F action) {
  try {
    action();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

/// A folder that goes away.
struct TemporaryFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("gradus_hooks_" + std::to_string(::getpid()) + "_" + std::to_string(count()++));
  TemporaryFolder() { std::filesystem::create_directories(path); }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  static int& count() {
    static int value = 0;
    return value;
  }
};

}  // namespace gradus::hooks
