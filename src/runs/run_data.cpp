#include "runs/run_data.h"

#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <sstream>

#include "trackers/tracked_run.h"

namespace gradus::runs {
namespace {

constexpr double kLongestSilence = 600;  // of a run on another machine
constexpr double kRateWindow = 60;

}  // namespace

const char* status_name(RunStatus status) {
  switch (status) {
    case RunStatus::running: return "running";
    case RunStatus::finished: return "finished";
    case RunStatus::interrupted: return "interrupted";
    case RunStatus::failed: return "failed";
    case RunStatus::lost: return "lost";
    case RunStatus::unknown: break;
  }
  return "unknown";
}

const Series* RunData::find(std::string_view key) const {
  const auto found = series.find(key);
  return found != series.end() && !found->second.empty() ? &found->second : nullptr;
}

double RunData::steps_per_second() const {
  const auto* rate = find("steps_per_second");
  if (rate == nullptr) return 0;
  // The mean over the steps of the window, each part weighted by its time.
  const double since = std::max(rate->time(rate->size() - 1) - kRateWindow, session_began);
  double seconds = 0, steps = 0;
  for (size_t i = rate->size(); i-- > 0 && rate->time(i) > since;) {
    if (!(rate->value(i) > 0)) continue;
    const auto before =
        i > 0 && rate->step(i - 1) >= session_step ? rate->step(i - 1) : session_step;
    const auto passed = double(rate->step(i) - before);
    steps += passed;
    seconds += passed / rate->value(i);
  }
  return seconds > 0 ? steps / seconds : 0;
}

std::optional<int64_t> process_start_of(int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos || name_end + 2 > text.size()) return std::nullopt;
  std::istringstream words(text.substr(name_end + 2));
  std::string state, skipped;
  words >> state;
  if (state == "Z" || state == "X") return std::nullopt;
  for (int i = 0; i < 18; ++i) words >> skipped;
  int64_t start = 0;
  return words >> start ? std::optional(start) : std::nullopt;
}

RunStatus status_of(const RunData& run, double now) {
  if (run.said != RunStatus::running) return run.said;
  if (run.host == tracked::host_name())
    return process_start_of(run.process) == run.process_start ? RunStatus::running
                                                              : RunStatus::lost;
  // A sign from the future is none: clocks differ by seconds.
  return std::abs(now - run.last_sign) < kLongestSilence ? RunStatus::running : RunStatus::lost;
}

double clock_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

int curve_rank(std::string_view key) {
  constexpr std::array<std::string_view, 6> kFirst = {
      "loss", "eval_loss", "learning_rate", "grad_norm", "steps_per_second", "reward"};
  for (size_t i = 0; i < kFirst.size(); ++i)
    if (key == kFirst[i]) return int(i);
  const bool is_speed = key.ends_with("_runtime") || key.ends_with("_per_second") ||
                        key.ends_with("_time") || key == "total_flos" || key == "epoch" ||
                        key == "num_input_tokens_seen" || key.starts_with("train_");
  if (key.starts_with("system/")) return 40;
  if (is_speed) return 30;
  return key.starts_with("eval_") ? 10 : 20;
}

}  // namespace gradus::runs
