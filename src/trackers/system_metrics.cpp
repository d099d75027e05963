#include "trackers/system_metrics.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace gradus {
namespace {

constexpr double kMebi = 1024.0 * 1024.0;

/// The value of a line "Name:  123 kB" of a file of /proc, in bytes; 0 when it is not there.
double proc_bytes(const char* file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name + ":")) {
      std::istringstream words(line.substr(name.size() + 1));
      double value = 0;
      words >> value;
      return value * 1024;
    }
  return 0;
}

/// User and system time of this process, in ticks.
int64_t process_ticks() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream words(text.substr(name_end + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) words >> skipped;
  int64_t user = 0, system = 0;
  words >> user >> system;
  return user + system;
}

}  // namespace

std::map<std::string, double> SystemMetrics::sample() {
  std::map<std::string, double> found;

  std::ifstream stat("/proc/stat");
  std::string word;
  stat >> word;
  int64_t total = 0, idle = 0;
  for (int i = 0; i < 8; ++i) {
    int64_t ticks = 0;
    stat >> ticks;
    total += ticks;
    if (i == 3 || i == 4) idle += ticks;  // idle and waiting for a disk
  }
  const auto process = process_ticks();
  if (total_ > 0 && total > total_) {
    const auto passed = double(total - total_);
    const auto processors = double(::sysconf(_SC_NPROCESSORS_ONLN));
    found["cpu.avg_util_percent"] = 100.0 * double(total - idle - busy_) / passed;
    // Of one processor, so that two busy threads are 200.
    found["cpu"] = 100.0 * double(process - process_) / passed * processors;
  }
  busy_ = total - idle;
  total_ = total;
  process_ = process;

  const double memory = proc_bytes("/proc/meminfo", "MemTotal");
  const double available = proc_bytes("/proc/meminfo", "MemAvailable");
  const double resident = proc_bytes("/proc/self/status", "VmRSS");
  if (memory > 0) {
    found["memory_percent"] = 100.0 * (memory - available) / memory;
    found["proc.memory.availableMB"] = available / kMebi;
    found["proc.memory.rssMB"] = resident / kMebi;
    found["proc.memory.percent"] = 100.0 * resident / memory;
  }
  found["proc.cpu.threads"] = proc_bytes("/proc/self/status", "Threads") / 1024;

  struct statvfs disk{};
  if (::statvfs("/", &disk) == 0 && disk.f_blocks > 0) {
    const double size = double(disk.f_blocks) * double(disk.f_frsize);
    const double used = size - double(disk.f_bfree) * double(disk.f_frsize);
    found["disk./.usagePercent"] =
        100.0 * used / (used + double(disk.f_bavail) * double(disk.f_frsize));
    found["disk./.usageGB"] = used / kMebi / 1024;
  }
  return found;
}

}  // namespace gradus
