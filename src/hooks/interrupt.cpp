#include "hooks/interrupt.h"

#include <signal.h>

#include <atomic>

namespace gradus::hooks {
namespace {

std::atomic<bool> g_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "written by a signal handler");
struct sigaction g_former{};

void handle(int signal) {
  if (!g_interrupted.exchange(true)) return;
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
  sigaction(SIGINT, &action, &g_former);
}

InterruptScope::~InterruptScope() { sigaction(SIGINT, &g_former, nullptr); }

bool take_interrupt() {
  return g_interrupted.load(std::memory_order_relaxed) && g_interrupted.exchange(false);
}

}  // namespace gradus::hooks
