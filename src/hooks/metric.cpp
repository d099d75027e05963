#include <gradus/core/error.h>
#include <gradus/hooks/metric.h>
#include <gradus/hooks/optimization_hooks.h>
#include <gradus/hooks/trainer.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradus::hooks {

Metric::Metric(std::string metric_name, int64_t every, Point point, bool prefix)
    : name(std::move(metric_name)), freq(every), phase(point), use_prefix(prefix) {
  if (freq < 1)
    throw Error("G-HOOK-1", ErrorKind::usage,
                fmt::format("metric {}: freq: expected at least 1, received {}", name, freq),
                "1 collects at every optimizer step.");
}

bool Metric::should_run(const Trainer& trainer) const {
  return !trainer.training() || trainer.step_state().optimizer_step % freq == 0;
}

torch::Tensor Metric::from_result(Trainer& trainer, const std::string& key) {
  if (const auto* value = trainer.result().find(key)) return value->detach();
  throw Error("G-HOOK-7", ErrorKind::training,
              fmt::format("a metric needs '{}' from {}, which returned {}", key,
                          trainer.training() ? "train_step" : "eval_step",
                          fmt::join(trainer.result().names(), ", ")),
              "Return it from the step, or give the metric another key.");
}

Loss::Loss(LossOptions options) : Metric("loss", options.freq), options_(std::move(options)) {}

MetricValues Loss::operator()(Trainer& trainer) {
  return {{name,
           options_.loss_fn ? options_.loss_fn(trainer) : from_result(trainer, options_.loss_key)}};
}

Accuracy::Accuracy(AccuracyOptions options)
    : Metric(options.name, options.freq), options_(std::move(options)) {}
Accuracy::Accuracy(std::string pred_key, std::string target_key)
    : Accuracy(
          AccuracyOptions{.pred_key = std::move(pred_key), .target_key = std::move(target_key)}) {}

MetricValues Accuracy::operator()(Trainer& trainer) {
  const torch::NoGradGuard no_grad;
  torch::Tensor predicted;
  if (options_.pred_fn) {
    predicted = options_.pred_fn(trainer);
  } else {
    const auto scores = from_result(trainer, options_.pred_key);
    predicted = scores.dim() > 1             ? scores.argmax(-1)
                : scores.is_floating_point() ? scores > 0.5
                                             : scores;
  }
  const auto targets =
      options_.target_fn ? options_.target_fn(trainer) : from_result(trainer, options_.target_key);
  return {{name, (predicted == targets).to(torch::kFloat).mean()}};
}

bool LRStats::should_run(const Trainer& trainer) const {
  return trainer.training() && Metric::should_run(trainer);
}

MetricValues LRStats::operator()(Trainer& trainer) {
  return {{name, trainer.get_hook<LRSchedulerHook>().lr()}};
}

bool SamplesPerSecond::should_run(const Trainer& trainer) const {
  return trainer.training() && Metric::should_run(trainer);
}

MetricValues SamplesPerSecond::operator()(Trainer& trainer) {
  const auto now = std::chrono::steady_clock::now();
  const auto before = std::exchange(last_, now);
  if (!before) return {};
  const double seconds = std::max(std::chrono::duration<double>(now - *before).count(), 1e-9);
  return {{name, double(batch_size_.value_or(trainer.batch().rows())) / seconds}};
}

}  // namespace gradus::hooks
