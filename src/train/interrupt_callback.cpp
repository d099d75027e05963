#include <gradus/core/error.h>
#include <gradus/train/callbacks.h>
#include <signal.h>

#include <atomic>
#include <chrono>

namespace gradus {
namespace {

// Written by the signal handler, read by the training thread.
volatile sig_atomic_t g_signal = 0;
std::atomic<int64_t> g_received_ms = 0;
struct sigaction g_former[NSIG];

int64_t now_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);  // may be called in a signal handler
  return int64_t(time.tv_sec) * 1000 + time.tv_nsec / 1'000'000;
}

void handle(int signal) {
  if (g_signal != 0) {
    // The second one acts as it would have without us.
    sigaction(signal, &g_former[signal], nullptr);
    raise(signal);
    return;
  }
  g_received_ms = now_ms();
  g_signal = signal;
}

}  // namespace

InterruptCallback::InterruptCallback() : InterruptCallback({SIGINT, SIGTERM}) {}

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

void InterruptCallback::on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                                       const CallbackContext&) {
  if (std::exchange(installed_, true)) return;
  g_signal = 0;
  stopped_by_ = 0;
  struct sigaction action{};
  action.sa_handler = handle;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : signals_) {
    struct sigaction former{};
    sigaction(signal, &action, &former);
    if (former.sa_handler != handle)
      g_former[signal] = former;  // another of these callbacks may be there already
  }
}

void InterruptCallback::ask(TrainerControl& control) {
  if (g_signal == 0 || stopped_by_ != 0) return;
  if (double(now_ms() - g_received_ms) < grace_seconds_ * 1000) return;
  stopped_by_ = g_signal;
  control.should_save = true;
  control.should_training_stop = true;
  control.is_interrupted = true;
}

void InterruptCallback::on_step_end(const TrainingArguments&, TrainerState&,
                                    TrainerControl& control, const CallbackContext&) {
  ask(control);
}
void InterruptCallback::on_epoch_end(const TrainingArguments&, TrainerState&,
                                     TrainerControl& control, const CallbackContext&) {
  ask(control);
}
void InterruptCallback::on_train_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                                     const CallbackContext&) {
  restore_handlers();
}

void InterruptCallback::restore_handlers() {
  if (!std::exchange(installed_, false)) return;
  for (const int signal : signals_) sigaction(signal, &g_former[signal], nullptr);
}

}  // namespace gradus
