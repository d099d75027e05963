#include "hooks/interrupt.h"

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace gradus::hooks {
namespace {

std::atomic<bool> g_interrupted = false;
std::atomic<int64_t> g_interrupted_ms = 0;
static_assert(std::atomic<int64_t>::is_always_lock_free, "written by a signal handler");
struct sigaction g_former{};

int64_t clock_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);  // may be called in a signal handler
  return int64_t(time.tv_sec) * 1000 + time.tv_nsec / 1'000'000;
}

void handle(int signal) {
  if (!g_interrupted.exchange(true)) {
    g_interrupted_ms = clock_ms();
    return;
  }
  if (clock_ms() - g_interrupted_ms < 1000) return;  // the same request, sent twice
  sigaction(signal, &g_former, nullptr);
  raise(signal);
}

}  // namespace

InterruptScope::InterruptScope() {
  g_interrupted = false;
  struct sigaction action{};
  action.sa_handler = handle;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, nullptr, &g_former);
  // A program that was started with SIGINT ignored, by nohup or in the background, goes on.
  const bool is_ignored = (g_former.sa_flags & SA_SIGINFO) == 0 && g_former.sa_handler == SIG_IGN;
  if (!is_ignored) sigaction(SIGINT, &action, nullptr);
}

InterruptScope::~InterruptScope() { sigaction(SIGINT, &g_former, nullptr); }

bool take_interrupt() {
  return g_interrupted.load(std::memory_order_relaxed) && g_interrupted.exchange(false);
}

}  // namespace gradus::hooks
