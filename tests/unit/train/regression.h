#pragma once

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/dataset.h>
#include <gradus/train/callbacks.h>
#include <gradus/train/trainer.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <mutex>
#include <random>

#include "../../default_signals.h"
#include "../../test_device.h"

/// The fixtures of the peer's own tests (peer-tests.md 9.0): y = a x + b on noisy data around y = 2
/// x + 3.
namespace gradus::testing {

namespace fs = std::filesystem;
using nlohmann::json;

/// numpy's legacy generator: MT19937 and the polar method with its second value kept.
class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed) : engine_(seed) {}
  double uniform() {
    const uint32_t high = uint32_t(engine_()) >> 5, low = uint32_t(engine_()) >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
  }
  double normal() {
    if (kept_) return *std::exchange(kept_, std::nullopt);
    double x = 0, y = 0, square = 0;
    do {
      x = 2.0 * uniform() - 1.0;
      y = 2.0 * uniform() - 1.0;
      square = x * x + y * y;
    } while (square >= 1.0 || square == 0.0);
    const double factor = std::sqrt(-2.0 * std::log(square) / square);
    kept_ = factor * x;
    return factor * y;
  }

 private:
  std::mt19937 engine_;
  std::optional<double> kept_;
};

struct RegressionData {
  explicit RegressionData(int64_t length = 64, Names label_names = {"labels"}) {
    NumpyRandom random(42);
    std::vector<float> values;
    for (int64_t i = 0; i < length; ++i) values.push_back(float(random.normal()));
    x = torch::tensor(values);
    std::vector<std::pair<std::string, torch::Tensor>> columns;
    for (const auto& name : label_names) {
      std::vector<float> y;
      for (const float value : values)
        y.push_back(float(double(2.0F * value + 3.0F) + 0.1 * random.normal()));
      ys.push_back(torch::tensor(y));
      columns.emplace_back(name, ys.back());
    }
    columns.emplace_back("input_x", x);
    rows = from_tensors(std::move(columns));
  }
  torch::Tensor x;
  TensorList ys;
  std::shared_ptr<Dataset> rows;
};

struct RegressionModel : Model {
  explicit RegressionModel(double a = 0, double b = 0, bool double_output = false)
      : a(register_parameter("a", torch::tensor(float(a)))),
        b(register_parameter("b", torch::tensor(float(b)))),
        double_output(double_output) {}
  ModelOutput forward(const Batch& inputs, const ForwardOptions&) override {
    const auto y = inputs["input_x"] * a + b;
    ModelOutput out;
    if (inputs.contains("labels")) out.set("loss", torch::mse_loss(y, inputs["labels"]));
    out.set("logits", y);
    if (double_output) out.set("again", y);
    return out;
  }
  std::vector<std::string> input_names() const override { return {"input_x", "labels"}; }
  std::string main_input_name() const override { return "input_x"; }
  torch::Tensor a, b;
  bool double_output;
};

inline Metrics almost_accuracy(const EvalPrediction& p) {
  return {{"accuracy",
           (p.predictions - p.label_ids).abs().le(0.25).to(torch::kDouble).mean().item<double>()}};
}

/// A folder of its own and an ear for everything the library says; both end with the test.
class Sandbox : public LogSink, public std::enable_shared_from_this<Sandbox> {
 public:
  static std::shared_ptr<Sandbox> make() {
    at::set_num_threads(1);
    auto box = std::shared_ptr<Sandbox>(new Sandbox, [](Sandbox* each) {
      std::error_code ignored;
      fs::remove_all(each->folder, ignored);
      delete each;
    });
    static int count = 0;
    box->folder =
        fs::temp_directory_path() / fmt::format("gradus-train-{}-{}", ::getpid(), ++count);
    fs::create_directories(box->folder);
    return box;
  }
  void message(LogLevel, std::string_view line) override {
    const std::lock_guard lock(mutex_);
    messages.emplace_back(line);
  }
  void print(std::string_view text) override {
    const std::lock_guard lock(mutex_);
    printed += text;
  }
  int64_t heard(const std::string& part) const {
    const std::lock_guard lock(mutex_);
    return std::count_if(messages.begin(), messages.end(),
                         [&](const auto& line) { return line.find(part) != std::string::npos; });
  }
  bool has_printed() const {
    const std::lock_guard lock(mutex_);
    return !printed.empty();
  }
  fs::path folder;
  std::vector<std::string> messages;
  std::string printed;

 private:
  Sandbox() = default;
  mutable std::mutex mutex_;
};

class Box {
 public:
  Box() : sandbox_(Sandbox::make()), former_(set_log_sink(sandbox_)), level_(log_level()) {
    set_log_level(LogLevel::warning);
  }
  ~Box() {
    set_log_sink(former_);
    set_log_level(level_);
  }
  Sandbox* operator->() const { return sandbox_.get(); }
  fs::path run(const std::string& name = "run") const { return sandbox_->folder / name; }
  std::string dir(const std::string& name = "run") const { return run(name).string(); }

 private:
  std::shared_ptr<Sandbox> sandbox_;
  std::shared_ptr<LogSink> former_;
  LogLevel level_;
};

/// The options of the peer's `get_regression_trainer`; change what the test is about.
inline TrainerOptions regression(const Box& box, TrainingArguments args = {}, double a = 0,
                                 double b = 0, int64_t train_len = 64, int64_t eval_len = 64) {
  if (!args.output_dir) args.output_dir = box.dir();
  args.use_cpu = !on_gpu();
  args.disable_tqdm = true;
  return {.model = std::make_shared<RegressionModel>(a, b),
          .args = std::move(args),
          .train_dataset = RegressionData(train_len).rows,
          .eval_dataset = RegressionData(eval_len).rows};
}

inline std::pair<float, float> weights(const Trainer& trainer) {
  const auto state = trainer.model().state_dict();
  return {state["a"].item<float>(), state["b"].item<float>()};
}

inline std::vector<int64_t> steps_saved(const fs::path& run) {
  std::vector<int64_t> steps;
  if (!fs::exists(run)) return steps;
  for (const auto& entry : fs::directory_iterator(run))
    if (const auto name = entry.path().filename().string(); name.starts_with("checkpoint-"))
      steps.push_back(std::stoll(name.substr(11)));
  std::sort(steps.begin(), steps.end());
  return steps;
}

/// log_history without what a clock decides.
inline std::vector<json> timeless(std::vector<json> history) {
  for (auto& entry : history)
    for (auto it = entry.begin(); it != entry.end();)
      it = it.key().ends_with("_runtime") || it.key().ends_with("_per_second") ? entry.erase(it)
                                                                               : std::next(it);
  return history;
}

/// The error `act` ends with, or one of id "none".
inline Error error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  return Error("none", ErrorKind::internal, "nothing was thrown");
}

}  // namespace gradus::testing
