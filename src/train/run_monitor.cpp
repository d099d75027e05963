#include "train/run_monitor.h"

#include <fmt/format.h>
#include <gradus/core/byte_size.h>
#include <gradus/core/log.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace gradus {
namespace {

constexpr double kMuchWaiting = 0.3;     // share of the time
constexpr double kShortestPeriod = 2.0;  // seconds between logs that say something about speed
constexpr int64_t kLogsInARow = 3;
constexpr double kExplosion = 20;  // times the usual gradient norm
constexpr size_t kUsualNorms = 20, kFewestNorms = 5;
constexpr double kIdle = 40;  // percent
constexpr size_t kBusySamples = 10;
constexpr double kSlowSave = 0.2;  // share of the time between two saves

double middle_of(std::deque<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

void RunMonitor::begin(double now) {
  *this = RunMonitor();
  last_log_ = last_save_ = now;
}

void RunMonitor::say_once(const std::string& topic, const std::string& text) {
  if (said_.insert(topic).second) log_warning(text);
}

void RunMonitor::logged(const Logs& logs, int64_t filtered_losses, double now) {
  const auto found = [&](const char* key) -> std::optional<double> {
    const auto entry = logs.find(key);
    return entry == logs.end() ? std::nullopt : std::optional(entry->second);
  };
  const auto loss = found("loss");
  if (filtered_losses > filtered_ || (loss && !std::isfinite(*loss)))
    say_once("loss",
             "A loss is not finite. Lower --learning_rate, set --max_grad_norm or more "
             "--warmup_steps, use --bf16 in place of --fp16; --debug underflow_overflow names the "
             "layer, --spike_action rollback leaves such steps out.");
  filtered_ = filtered_losses;
  if (const auto norm = found("grad_norm"); norm && std::isfinite(*norm)) {
    if (norms_.size() >= kFewestNorms && *norm > kExplosion * middle_of(norms_) && *norm > 1)
      say_once("gradient",
               fmt::format("The gradient norm explodes: it is {:.3g}, usual is {:.3g}. Lower "
                           "--learning_rate, lower --max_grad_norm, or look at the last rows.",
                           *norm, middle_of(norms_)));
    norms_.push_back(*norm);
    if (norms_.size() > kUsualNorms) norms_.pop_front();
  }
  const double period = now - last_log_;
  if (period >= kShortestPeriod) {
    const double share = waited_ / period;
    slow_logs_ = share > kMuchWaiting ? slow_logs_ + 1 : 0;
    if (slow_logs_ >= kLogsInARow)
      say_once("loader",
               fmt::format("The run waits for data {:.0f} % of its time. Set "
                           "--dataloader_num_workers to more threads, or prepare the data "
                           "beforehand (gradus tokenize).",
                           100 * share));
    last_log_ = now;
    waited_ = 0;
  }
}

void RunMonitor::gpu_is_busy(double percent) {
  busy_.push_back(percent);
  if (busy_.size() > kBusySamples) busy_.pop_front();
  const double mean = std::accumulate(busy_.begin(), busy_.end(), 0.0) / double(busy_.size());
  if (busy_.size() == kBusySamples && mean < kIdle)
    say_once("gpu", fmt::format("The GPU is busy only {:.0f} % of the time. Use larger batches "
                                "(--per_device_train_batch_size), more --dataloader_num_workers, "
                                "or log and evaluate less often.",
                                mean));
}

void RunMonitor::waited_for_save(double seconds, double now) {
  const double interval = now - last_save_;
  last_save_ = now;
  if (seconds > 1 && seconds > kSlowSave * interval)
    say_once("save", fmt::format("A checkpoint takes longer to write than the time to the next: "
                                 "the run waited {:.1f} s for the disk. Save less often "
                                 "(--save_steps), save less (--save_only_model), or use a faster "
                                 "disk.",
                                 seconds));
}

void RunMonitor::disk_has(uint64_t free_bytes, uint64_t checkpoint_bytes,
                          const std::filesystem::path& folder) {
  if (checkpoint_bytes == 0 || free_bytes >= 3 * checkpoint_bytes) return;
  say_once("disk", fmt::format("The disk of {} is nearly full: {} are free, a checkpoint takes {}. "
                               "Set --save_total_limit, or make room; a save that fails is tried "
                               "again.",
                               folder.string(), format_byte_size(double(free_bytes)),
                               format_byte_size(double(checkpoint_bytes))));
}

uint64_t folder_bytes(const std::filesystem::path& folder) {
  uint64_t sum = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(folder, error), end; at != end && !error;
       at.increment(error))
    if (at->is_regular_file(error)) sum += at->file_size(error);
  return error ? 0 : sum;
}

}  // namespace gradus
