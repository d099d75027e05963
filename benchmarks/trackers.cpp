// bench_trackers FOLDER STEPS BATCH NAME,NAME…: a small model that logs every step of BATCH rows,
// with these trackers or with none ("none"), on one thread. Prints one line of JSON for
// benchmarks/trackers.py: the microseconds of a step, those of them in which the training thread
// worked, the microseconds of a log (the median), the logs of a second and all losses, exactly.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/log.h>
#include <gradus/core/memory.h>
#include <gradus/data/dataset.h>
#include <gradus/train/callbacks.h>
#include <gradus/train/trainer.h>
#include <time.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <iostream>
#include <sstream>

namespace {

constexpr int64_t kWarmUp = 50, kRows = 4096, kWidth = 256;

double seconds_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

class Silent : public gradus::LogSink {
  void message(gradus::LogLevel level, std::string_view text) override {
    if (level == gradus::LogLevel::warning) std::cerr << text << '\n';
  }
  void print(std::string_view) override {}
};

/// Measures what a log takes with all that listens to it.
class TimedTrainer : public gradus::Trainer {
 public:
  using gradus::Trainer::Trainer;
  void log(gradus::Logs logs, std::optional<double> start_time) override {
    const double began = seconds_of(CLOCK_MONOTONIC);
    gradus::Trainer::log(std::move(logs), start_time);
    times_.push_back(seconds_of(CLOCK_MONOTONIC) - began);
  }
  double median_log() {
    const auto middle = times_.begin() + std::ptrdiff_t(times_.size() / 2);
    std::nth_element(times_.begin(), middle, times_.end());
    return *middle;
  }

 private:
  std::vector<double> times_;
};

gradus::TrainingArguments arguments(const std::string& folder, int64_t steps, int64_t batch,
                                    const std::string& trackers) {
  std::vector<std::string> names;
  std::istringstream list(trackers);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return {.output_dir = folder,
          .per_device_train_batch_size = batch,
          .max_steps = steps,
          .learning_rate = 1e-3,
          .logging_steps = 1,
          .disable_tqdm = true,
          .report_to = names,
          .save_strategy = "no",
          .use_cpu = true};
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) {
    std::cerr << "usage: bench_trackers FOLDER STEPS BATCH none|NAME,NAME…\n";
    return 2;
  }
  gradus::keep_freed_memory();  // as gradus train does; otherwise the heap's end decides the time
  gradus::set_log_sink(std::make_shared<Silent>());
  at::set_num_threads(1);
  torch::manual_seed(7);
  const int64_t steps = std::stoll(words[2]);
  torch::nn::Sequential layers(torch::nn::Linear(kWidth, kWidth), torch::nn::ReLU(),
                               torch::nn::Linear(kWidth, kWidth), torch::nn::ReLU(),
                               torch::nn::Linear(kWidth, 1));
  const auto model =
      gradus::make_model(layers, [](torch::nn::SequentialImpl& all, const gradus::Batch& batch) {
        const auto y = all.forward(batch["x"]).squeeze(-1);
        return gradus::ModelOutput{{"loss", torch::mse_loss(y, batch["labels"])}};
      });
  const auto x = torch::randn({kRows, kWidth});
  TimedTrainer trainer(
      {.model = model,
       .args = arguments(words[1], steps, std::stoll(words[3]), words[4]),
       .train_dataset = gradus::from_tensors({{"x", x}, {"labels", x.square().mean(1)}})});
  double began = 0, worked = 0, ended = 0, last = 0;
  trainer.on(gradus::Event::step_end,
             [&](const gradus::CallbackContext& at, gradus::TrainerControl&) {
               ended = seconds_of(CLOCK_MONOTONIC);
               last = seconds_of(CLOCK_THREAD_CPUTIME_ID);
               if (at.state.global_step == kWarmUp) began = ended, worked = last;
             });
  trainer.train();
  std::string losses;
  for (const auto& entry : trainer.state().log_history)
    if (entry.contains("loss")) losses += fmt::format("{:a} ", entry["loss"].get<double>());
  const double each = (ended - began) / double(steps - kWarmUp);
  std::cout << fmt::format(
      "{{\"step\": {:.3f}, \"worked\": {:.3f}, \"log\": {:.3f}, \"logs\": {:.1f}, "
      "\"losses\": \"{}\"}}\n",
      1e6 * each, 1e6 * (last - worked) / double(steps - kWarmUp), 1e6 * trainer.median_log(),
      1 / each, losses);
}
