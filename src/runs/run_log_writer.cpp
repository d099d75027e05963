#include "runs/run_log_writer.h"

#include <fmt/format.h>
#include <gradus/core/json.h>
#include <gradus/core/printable.h>
#include <gradus/version.h>
#include <unistd.h>

#include "device/nvml.h"
#include "runs/run_data.h"
#include "trackers/tracked_run.h"

namespace gradus::runs {
namespace {

using std::chrono_literals::operator""s;
constexpr auto kProgressInterval = 2s, kSystemInterval = 10s;
constexpr size_t kLongestMessage = 2000;
constexpr int kMostGpus = 64;

}  // namespace

RunLogWriter::RunLogWriter(std::filesystem::path file) : path_(std::move(file)) {}

void RunLogWriter::write(const nlohmann::ordered_json& line) {
  if (!std::exchange(is_open_, true) && file_.open(path_)) file_.drop_partial_line();
  file_.append(dump_json(line) + "\n");
}

void RunLogWriter::begin(const RunStart& start) {
  const std::scoped_lock lock(mutex_);
  if (start.step == 0) {
    file_.close();
    is_open_ = false;
    std::error_code none;
    std::filesystem::remove(path_, none);
  }
  write({{"event", "begin"},
         {"time", clock_now()},
         {"gradus", kVersion},
         {"pid", ::getpid()},
         {"host", tracked::host_name()},
         {"process_start", process_start_of(::getpid()).value_or(0)},
         {"step", start.step},
         {"max_steps", start.max_steps},
         {"parameters", start.parameters.value_or(0)},
         {"settings", start.settings},
         {"model", start.model}});
  last_step_ = start.step;
  last_progress_ = Clock::now();
  next_progress_ = last_progress_ + kProgressInterval;
  next_system_ = last_progress_ + kProgressInterval;
  machine_.sample();  // shares of processor time are counted from here
}

void RunLogWriter::entry(const std::map<std::string, double>& values, int64_t step) {
  nlohmann::ordered_json line = {{"step", step}, {"time", clock_now()}};
  for (const auto& [key, value] : values) line[key] = value;
  const std::scoped_lock lock(mutex_);
  write(line);
}

void RunLogWriter::progress(int64_t step, double epoch) {
  const auto now = Clock::now();
  const std::scoped_lock lock(mutex_);
  if (now < next_progress_) return;
  const double seconds = std::chrono::duration<double>(now - last_progress_).count();
  nlohmann::ordered_json line = {
      {"event", "progress"}, {"time", clock_now()}, {"step", step}, {"epoch", epoch}};
  if (step > last_step_) line["steps_per_second"] = double(step - last_step_) / seconds;
  if (now >= next_system_) {
    line["system"] = system();
    next_system_ = now + kSystemInterval;
  }
  write(line);
  // Without a step, in a long evaluation, the time goes on to count.
  if (step > last_step_) last_progress_ = now;
  last_step_ = step;
  next_progress_ = now + kProgressInterval;
}

nlohmann::ordered_json RunLogWriter::system() {
  nlohmann::ordered_json found = nlohmann::ordered_json::object();
  for (const auto& [key, value] : machine_.sample()) found[key] = value;
  for (int i = 0; i < kMostGpus; ++i) {
    const auto gpu = device::gpu_use(i);
    if (!gpu) break;
    const auto add = [&](const char* key, double value) {
      found[fmt::format("gpu.{}.{}", i, key)] = value;
    };
    add("busy_percent", gpu->percent);
    add("memoryMB", double(gpu->memory_used) / 1048576);
    add("memory_totalMB", double(gpu->memory_total) / 1048576);
    if (gpu->watts > 0) add("watts", gpu->watts);
  }
  return found;
}

void RunLogWriter::message(const std::string& level, std::string_view text) {
  const std::scoped_lock lock(mutex_);
  write({{"event", "message"},
         {"time", clock_now()},
         {"level", level},
         {"text", printable(text.substr(0, kLongestMessage))}});
}

void RunLogWriter::best(double metric, const std::string& checkpoint) {
  const std::scoped_lock lock(mutex_);
  write({{"event", "best"}, {"time", clock_now()}, {"metric", metric}, {"checkpoint", checkpoint}});
}

void RunLogWriter::end(const std::string& how, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  write({{"event", "end"},
         {"time", clock_now()},
         {"how", how},
         {"reason", printable(std::string_view(reason).substr(0, kLongestMessage))}});
}

}  // namespace gradus::runs
