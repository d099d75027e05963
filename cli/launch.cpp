// launch: starts the processes of a run on this machine and looks after them.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gradus/config/option_set.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "cli.h"
#include "reference.h"

namespace gradus::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct LaunchOptions {
  int64_t nproc = 1;
  int64_t nnodes = 1;
  int64_t node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int64_t master_port = 0;
  int64_t max_restarts = 0;
};
constexpr OptionRow<LaunchOptions> kLaunchRows[] = {
    {&LaunchOptions::nproc, "nproc", Group::program, at_least(1),
     "How many processes to start on this machine.", Origin::gradus},
    {&LaunchOptions::nnodes, "nnodes", Group::program, at_least(1), "How many machines take part.",
     Origin::gradus},
    {&LaunchOptions::node_rank, "node_rank", Group::program, at_least(0),
     "Which of them this is, from 0.", Origin::gradus},
    {&LaunchOptions::master_addr, "master_addr", Group::program, any_value(),
     "The address of machine 0.", Origin::gradus},
    {&LaunchOptions::master_port, "master_port", Group::program, at_least(0),
     "A free port of machine 0; 0 chooses one, when there is one machine.", Origin::gradus},
    {&LaunchOptions::max_restarts, "max_restarts", Group::program, at_least(0),
     "How often all processes are started again after one has failed. They continue from the last "
     "checkpoint.",
     Origin::gradus},
};

// How long the others may take to end by themselves after one has failed, and after a request.
constexpr auto kTimeToNotice = 5s;
constexpr auto kTimeToEnd = 1s;
// How long the others may take after a signal, when the first has saved and ended.
constexpr auto kTimeToStop = 30s;
constexpr auto kPoll = 20ms;

volatile sig_atomic_t g_launch_signal = 0;   // the last one
volatile sig_atomic_t g_launch_signals = 0;  // how many there were
void note_launch_signal(int signal) {
  g_launch_signal = signal;
  g_launch_signals = g_launch_signals + 1;
}

// A port that was free a moment ago.
int64_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool found = socket >= 0 && ::bind(socket, generic, length) == 0 &&
                     ::getsockname(socket, generic, &length) == 0;
  if (socket >= 0) ::close(socket);
  if (!found)
    throw Error("G-CLI-9", ErrorKind::io, "no free port was found on 127.0.0.1",
                "Name one with --master_port.");
  return ntohs(address.sin_port);
}

// How a process ended, in words; nothing for success.
std::optional<std::string> failure(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                       ::strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0) return fmt::format("ended with exit code {}", WEXITSTATUS(status));
  return std::nullopt;
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Whether a process stands still (SIGSTOP): it will notice nothing.
bool is_stopped(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(") ");
  return name_end != std::string::npos && text.substr(name_end + 2, 1) == "T";
}

/// The processes of one attempt.
class Workers {
 public:
  Workers(const LaunchOptions& options, std::vector<std::string> command, int64_t attempt)
      : options_(options), command_(std::move(command)), attempt_(attempt) {
    for (int64_t i = 0; i < options_.nproc; ++i) start(i);
  }
  ~Workers() {
    signal_all(SIGKILL);
    for (auto& worker : workers_)
      if (!worker.status) ::waitpid(worker.process, nullptr, 0);
  }

  /// Waits until all have ended. Ends the others when one fails, and passes on signals. Returns 0,
  /// or the exit code of the first that failed.
  int wait() {
    std::optional<Clock::time_point> notice, end;
    int passed_on = 0;
    while (true) {
      collect();
      if (running() == 0) return code_;
      if (const int received = g_launch_signals; received != passed_on) {
        passed_on = received;
        signal_all(g_launch_signal);
      }
      // Those that wait for the failed one find out by themselves, and say so; then no more
      // waiting.
      const auto now = Clock::now();
      if (code_ != 0) {
        if (all_stand_still()) signal_all(SIGKILL);
        if (!notice) notice = now + (passed_on == 0 ? kTimeToNotice : kTimeToStop);
        if (now > *notice && !end) {
          end = now + kTimeToEnd;
          signal_all(SIGTERM);
        }
        if (end && now > *end) signal_all(SIGKILL);
      }
      std::this_thread::sleep_for(kPoll);
    }
  }

 private:
  struct Worker {
    pid_t process = 0;
    std::optional<int> status = std::nullopt;
  };

  void start(int64_t local_rank) {
    const auto rank = options_.node_rank * options_.nproc + local_rank;
    const std::vector<std::pair<const char*, std::string>> variables = {
        {"RANK", std::to_string(rank)},
        {"WORLD_SIZE", std::to_string(options_.nnodes * options_.nproc)},
        {"LOCAL_RANK", std::to_string(local_rank)},
        {"LOCAL_WORLD_SIZE", std::to_string(options_.nproc)},
        {"MASTER_ADDR", options_.master_addr},
        {"MASTER_PORT", std::to_string(options_.master_port)},
        {"TORCHELASTIC_RESTART_COUNT", std::to_string(attempt_)}};
    const auto threads =
        std::max<int64_t>(int64_t(std::thread::hardware_concurrency()) / options_.nproc, 1);
    std::vector<char*> words;
    for (auto& word : command_) words.push_back(word.data());
    words.push_back(nullptr);
    const pid_t parent = ::getpid();
    const pid_t process = ::fork();
    if (process == 0) {
      // Nobody is left behind when this program is killed.
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (::getppid() != parent) ::_exit(143);
      for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
      ::setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 0);
      ::signal(SIGPIPE, SIG_DFL);
      ::execvp(words[0], words.data());
      const auto said = fmt::format("gradus: {}: {} [G-CLI-9]\n", command_[0], ::strerror(errno));
      static_cast<void>(!::write(STDERR_FILENO, said.data(), said.size()));
      ::_exit(127);
    }
    if (process < 0)
      throw Error("G-CLI-9", ErrorKind::io,
                  fmt::format("process {} cannot be started: {}", rank, ::strerror(errno)),
                  "Start fewer processes.");
    workers_.push_back({process});
  }

  // Of those that still run.
  bool all_stand_still() const {
    return std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
      return worker.status || is_stopped(worker.process);
    });
  }

  void collect() {
    for (size_t i = 0; i < workers_.size(); ++i) {
      auto& worker = workers_[i];
      int status = 0;
      if (worker.status || ::waitpid(worker.process, &status, WNOHANG) != worker.process) continue;
      worker.status = status;
      const auto how = failure(status);
      if (!how || code_ != 0) continue;
      code_ = exit_code(status);
      if (g_launch_signal == 0)
        log_print(fmt::format("gradus launch: process {} {}\n",
                              options_.node_rank * options_.nproc + int64_t(i), *how));
    }
  }

  size_t running() const {
    size_t count = 0;
    for (const auto& worker : workers_) count += worker.status ? 0 : 1;
    return count;
  }

  void signal_all(int signal) {
    for (const auto& worker : workers_)
      if (!worker.status) ::kill(worker.process, signal);
  }

  LaunchOptions options_;
  std::vector<std::string> command_;
  int64_t attempt_;
  std::vector<Worker> workers_;
  int code_ = 0;
};

constexpr const char* kLaunchUsage =
    "usage: gradus launch --nproc N [flags] train --task T ...\n"
    "       gradus launch --nproc N [flags] -- PROGRAM ...\n\n"
    "Starts N processes of gradus, or of a program of yours, that train together.\n\n";

// The flags before the command, and the command.
std::pair<std::vector<std::string>, std::vector<std::string>> split_launch_words(Words words) {
  size_t end = 0;
  while (end < words.size() && words[end].starts_with("--") && words[end] != "--") {
    const auto& word = words[end];  // not word.find: g++ 12 takes its length for negative
    const bool stands_alone =
        word == "--help" || std::find(word.begin(), word.end(), '=') != word.end();
    end += stands_alone ? 1 : 2;
  }
  end = std::min(end, words.size());
  std::vector<std::string> flags(words.begin(), words.begin() + std::ptrdiff_t(end));
  std::vector<std::string> command(words.begin() + std::ptrdiff_t(end), words.end());
  if (!command.empty() && command[0] == "--") {
    command.erase(command.begin());
  } else if (!command.empty()) {
    char program[4096] = {};
    const auto length = ::readlink("/proc/self/exe", program, sizeof program - 1);
    command.insert(command.begin(), length > 0 ? program : "gradus");
  }
  return {flags, command};
}

}  // namespace

std::vector<Flag> launch_flags() { return flags_of(kLaunchRows); }

int launch(Words words) {
  LaunchOptions options;
  OptionSet set;
  set.add(options, std::span<const OptionRow<LaunchOptions>>(kLaunchRows));
  const auto [flags, command] = split_launch_words(words);
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    print_line(kLaunchUsage + set.help());
    return words.empty() ? 2 : 0;
  }
  set.parse(flags);
  if (command.empty())
    throw Error("G-CLI-4", ErrorKind::usage, "gradus launch was given nothing to start",
                kLaunchUsage);
  if (options.nnodes > 1 && options.master_port == 0)
    throw Error("G-CLI-4", ErrorKind::usage,
                "gradus launch with several machines needs --master_addr and --master_port",
                "Name the same on every machine.");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before{};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::signal(signal, note_launch_signal);
  }
  const bool chooses_port = options.master_port == 0;
  for (int64_t attempt = 0;; ++attempt) {
    if (chooses_port) options.master_port = free_port();
    const int code = Workers(options, command, attempt).wait();
    if (code == 0 || g_launch_signal != 0 || attempt == options.max_restarts) return code;
    log_print(fmt::format("gradus launch: starting again ({} of {})\n", attempt + 1,
                          options.max_restarts));
  }
}

}  // namespace gradus::cli
