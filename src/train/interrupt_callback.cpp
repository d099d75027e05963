#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/train/callbacks.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <system_error>
#include <thread>

namespace gradus {
namespace {

// Written by the signal handler, read by the training thread.
volatile sig_atomic_t g_signal = 0;
std::atomic<int64_t> g_received_ms = 0;
struct sigaction g_former[NSIG];
sem_t g_arrived;                    // posted by the handler; see Announcer
std::atomic<bool> g_speaks = true;  // one process on a machine announces signals

// `timeout` and the process group of a terminal send a signal twice within milliseconds.
constexpr int64_t kSameRequestMs = 1000;

int64_t now_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);  // may be called in a signal handler
  return int64_t(time.tv_sec) * 1000 + time.tv_nsec / 1'000'000;
}

void handle(int signal) {
  const int code = errno;
  if (g_signal == 0) {
    g_received_ms = now_ms();
    g_signal = signal;
    sem_post(&g_arrived);
  } else if (now_ms() - g_received_ms >= kSameRequestMs) {
    // The user has waited and asks again: it acts as it would have without us.
    sigaction(signal, &g_former[signal], nullptr);
    raise(signal);
  }
  errno = code;
}

// Says in the log that a signal has arrived, at once: the step under way may take long. A handler
// must not log, so a thread waits for it while handlers are installed.
class Announcer {
 public:
  static Announcer& instance() {
    static auto& announcer = *new Announcer;  // never destroyed: its thread may outlive statics
    return announcer;
  }
  void begin() {
    const std::scoped_lock lock(mutex_);
    if (users_++ > 0) return;
    sem_init(&g_arrived, /*pshared=*/0, 0);
    ends_ = false;
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      log_debug("no thread is left to announce signals");
    }
  }
  void end() {
    const std::scoped_lock lock(mutex_);
    if (--users_ > 0) return;
    ends_ = true;
    sem_post(&g_arrived);
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    while (true) {
      while (sem_wait(&g_arrived) != 0) {
      }
      if (g_signal != 0 && !std::exchange(said_for_, g_signal)) say(g_signal);
      if (ends_) break;
    }
    said_for_ = 0;
  }
  static void say(int signal) {
    if (!g_speaks || log_level() > LogLevel::warning) return;
    const char* known = sigabbrev_np(signal);
    const auto name =
        known != nullptr ? std::string("SIG") + known : "signal " + std::to_string(signal);
    log_print((log_sink()->is_terminal() ? "\n" : "") + (signal == SIGINT ? "Ctrl-C" : name) +
              ": the run is being saved and stops. The same again after one second ends it at "
              "once, without saving.\n");
  }

  std::mutex mutex_;
  int users_ = 0;
  std::atomic<bool> ends_ = false;
  int said_for_ = 0;
  std::thread thread_;
};

bool is_ignored(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

InterruptCallback::InterruptCallback() : InterruptCallback({SIGINT, SIGTERM, SIGHUP}) {}

InterruptCallback::InterruptCallback(std::vector<int> signals, double grace_seconds)
    : signals_(std::move(signals)), grace_seconds_(grace_seconds) {
  for (const int signal : signals_)
    if (signal < 1 || signal >= NSIG || signal == SIGKILL || signal == SIGSTOP)
      throw Error(
          "G-TRAIN-18", ErrorKind::usage,
          "InterruptCallback: " + std::to_string(signal) + " is not a signal that can be caught",
          "Use SIGTERM, SIGINT, SIGUSR1 and the like.");
}
InterruptCallback::~InterruptCallback() { restore_handlers(); }

JITCheckpointCallback::JITCheckpointCallback(double kill_wait_seconds)
    : InterruptCallback({SIGTERM}, kill_wait_seconds) {}

void InterruptCallback::on_train_begin(const TrainingArguments&, TrainerState& state,
                                       TrainerControl&, const CallbackContext&) {
  if (std::exchange(installed_, true)) return;
  g_speaks = state.is_local_process_zero;
  Announcer::instance().begin();
  g_signal = 0;
  stopped_by_ = 0;
  caught_.clear();
  struct sigaction action{};
  action.sa_handler = handle;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : signals_) {
    struct sigaction former{};
    sigaction(signal, nullptr, &former);
    if (is_ignored(former)) continue;  // by nohup, or by a shell for its background jobs
    sigaction(signal, &action, nullptr);
    caught_.push_back(signal);
    if (former.sa_handler != handle)
      g_former[signal] = former;  // another of these callbacks may be there already
  }
}

void InterruptCallback::ask(TrainerControl& control) {
  if (!installed_ || g_signal == 0 || stopped_by_ != 0) return;
  if (double(now_ms() - g_received_ms) < grace_seconds_ * 1000) return;
  stopped_by_ = g_signal;
  if (!control.is_interrupted) control.save_was_due = control.should_save;
  control.should_save = true;
  control.should_training_stop = true;
  control.is_interrupted = true;
  control.interrupted_by = stopped_by_;
}

void InterruptCallback::on_step_end(const TrainingArguments&, TrainerState&,
                                    TrainerControl& control, const CallbackContext&) {
  ask(control);
}
void InterruptCallback::on_epoch_end(const TrainingArguments&, TrainerState&,
                                     TrainerControl& control, const CallbackContext&) {
  ask(control);
}
void InterruptCallback::on_prediction_step(const TrainingArguments&, TrainerState&,
                                           TrainerControl& control, const CallbackContext&) {
  ask(control);
}
void InterruptCallback::on_train_end(const TrainingArguments&, TrainerState&,
                                     TrainerControl& control, const CallbackContext&) {
  if (installed_ && stopped_by_ == 0 && control.interrupted_by != 0) {
    // Another process was told; the same signal may be on its way to this one.
    stopped_by_ = control.interrupted_by;
    g_received_ms = now_ms();
    g_signal = stopped_by_;
  }
  restore_handlers();
}

void InterruptCallback::restore_handlers() {
  if (!std::exchange(installed_, false)) return;
  // The second half of a request must not end the process while it reports what was saved. The
  // handler that stays then does nothing else: it gives way to the former one at the next signal.
  const bool may_repeat = stopped_by_ != 0 && now_ms() - g_received_ms < kSameRequestMs;
  if (!may_repeat)
    for (const int signal : caught_) sigaction(signal, &g_former[signal], nullptr);
  Announcer::instance().end();
}

}  // namespace gradus
