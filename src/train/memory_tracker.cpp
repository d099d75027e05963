#include "train/memory_tracker.h"

#include <gradus/device/runtime.h>
#include <unistd.h>

#include <fstream>

namespace gradus {
namespace {

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kilobytes = 0;
  while (status >> word)
    if (word == "VmHWM:") status >> kilobytes;
  return kilobytes * 1024;
}

// Linux sets VmHWM back to the present size on this request.
void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace

void MemoryTracker::start(const std::string& stage) {
  if (!enabled_ || stage_) return;
  stage_ = stage;
  reset_peak_resident();
  device::reset_peak_memory(device_);
  cpu_begin_ = resident_bytes();
  gpu_begin_ = device::memory_use(device_).allocated;
  if (stage == "init") {
    init_metrics_["before_init_mem_cpu"] = double(cpu_begin_);
    if (device_.is_cuda()) init_metrics_["before_init_mem_gpu"] = double(gpu_begin_);
  }
}

void MemoryTracker::stop(const std::string& stage, Metrics* metrics) {
  if (!enabled_ || stage_ != stage) return;
  stage_.reset();
  Metrics found;
  const auto put = [&](const char* kind, int64_t begin, int64_t end, int64_t peak) {
    found[stage + "_mem_" + kind + "_alloc_delta"] = double(end - begin);
    found[stage + "_mem_" + kind + "_peaked_delta"] =
        double(std::max<int64_t>(0, peak - std::max(begin, end)));
  };
  put("cpu", cpu_begin_, resident_bytes(), peak_resident_bytes());
  if (device_.is_cuda()) {
    const auto use = device::memory_use(device_);
    put("gpu", gpu_begin_, use.allocated, use.peak);
  }
  if (stage == "init") {
    init_metrics_.merge(found);
    return;
  }
  if (metrics == nullptr) return;
  metrics->merge(found);
  if (!std::exchange(init_reported_, true))
    metrics->insert(init_metrics_.begin(), init_metrics_.end());
}

}  // namespace gradus
