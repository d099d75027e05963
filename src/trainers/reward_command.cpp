// Rewards of another process: one line of JSON in, one line out.
#include <fcntl.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/core/printable.h>
#include <gradus/trainers/rewards.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "data/sources/column_kind.h"

namespace gradus {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr size_t kMostShown = 200;                   ///< Bytes of an answer in a message.
constexpr size_t kLongestAnswer = size_t{64} << 20;  ///< A line that does not end is none.
constexpr size_t kLongestSaid = size_t{64} << 10;    ///< The same of its error output.
constexpr int kBlocksAtOnce = 64;                    ///< Read before the clock is looked at again.
constexpr auto kTimeToLeave = std::chrono::milliseconds(500);

/// A file descriptor that is closed.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  int number() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

 private:
  int number_;
};

/// The process died or did not answer, and asking once more may help.
struct NoAnswer {
  std::string reason;
};

/// The process wrote more than one line for one question: whose answer is which?
struct UnaskedLine {
  std::string text;
};

std::string beginning_of(const std::string& text) {
  return printable(text.substr(0, kMostShown)) + (text.size() > kMostShown ? "…" : "");
}

/// One running process.
class RewardProcess {
 public:
  explicit RewardProcess(const std::string& command) {
    int input[2], output[2], errors[2];
    // A socket, because writing to a process that is gone must not send a signal.
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0) throw_cannot_start();
    Descriptor theirs(input[0]);
    input_ = Descriptor(input[1]);
    if (::pipe2(output, O_CLOEXEC) != 0) throw_cannot_start();
    output_ = Descriptor(output[0]);
    Descriptor their_output(output[1]);
    if (::pipe2(errors, O_CLOEXEC) != 0) throw_cannot_start();
    errors_ = Descriptor(errors[0]);
    Descriptor their_errors(errors[1]);
    const char* words[] = {"sh", "-c", command.c_str(), nullptr};
    const pid_t parent = ::getpid();
    process_ = ::fork();
    if (process_ < 0) throw_cannot_start();
    if (process_ == 0) {
      ::setpgid(0, 0);  // an interruption of the terminal is for the trainer, which saves first
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(143);
      ::dup2(theirs.number(), STDIN_FILENO);
      ::dup2(their_output.number(), STDOUT_FILENO);
      ::dup2(their_errors.number(), STDERR_FILENO);
      ::signal(SIGPIPE, SIG_DFL);
      ::execv("/bin/sh", const_cast<char* const*>(words));
      ::_exit(127);
    }
    ::setpgid(process_, process_);
    for (const auto* each : {&input_, &output_, &errors_})
      ::fcntl(each->number(), F_SETFL, ::fcntl(each->number(), F_GETFL) | O_NONBLOCK);
  }
  RewardProcess(const RewardProcess&) = delete;
  RewardProcess& operator=(const RewardProcess&) = delete;

  /// Closes its input, gives it a moment to leave, then stops it and what it has started.
  ~RewardProcess() {
    input_.close();
    const auto end = Clock::now() + kTimeToLeave;
    while (!is_gone() && Clock::now() < end) {
      pass_on_errors();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    pass_on_errors();
    ::kill(-process_, SIGKILL);
    if (!status_) ::waitpid(process_, nullptr, 0);
  }

  /// Writes a line and waits for one. Throws `NoAnswer`, and `UnaskedLine` where there are more.
  std::string ask(const std::string& question, double timeout) {
    check_nothing_unasked();
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(timeout));
    size_t written = 0;
    for (;;) {
      if (const auto line = pending_.find('\n', searched_); line != std::string::npos) {
        auto answer = pending_.substr(0, line);
        pending_.erase(0, line + 1);
        searched_ = 0;
        check_nothing_unasked();
        return answer;
      }
      searched_ = pending_.size();
      if (pending_.size() > kLongestAnswer) throw NoAnswer{"its answer has no end"};
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
      if (left <= 0) throw NoAnswer{fmt::format("it did not answer within {} s", timeout)};
      pollfd places[] = {{output_.number(), POLLIN, 0},
                         {errors_.number(), POLLIN, 0},
                         {written < question.size() ? input_.number() : -1, POLLOUT, 0}};
      ::poll(places, 3, int(std::min<int64_t>(left, 100)));
      pass_on_errors();
      if (places[2].revents != 0) written += write_some(question, written);
      if (!read_answer() && pending_.find('\n', searched_) == std::string::npos)
        throw NoAnswer{how_it_ended()};
    }
  }

 private:
  [[noreturn]] static void throw_cannot_start() {
    throw Error("G-RWD-2", ErrorKind::training,
                fmt::format("the reward command cannot be started: {}", ::strerror(errno)),
                "Free memory, processes or file descriptors.");
  }

  size_t write_some(const std::string& text, size_t from) const {
    const auto count =
        ::send(input_.number(), text.data() + from, text.size() - from, MSG_NOSIGNAL);
    return count > 0 ? size_t(count) : 0;  // a process that is gone is noticed when it is read
  }

  /// What the process has written since its last answer would be taken for the next one.
  void check_nothing_unasked() {
    read_answer();
    if (pending_.find_first_not_of(" \t\r\n") != std::string::npos)
      throw UnaskedLine{beginning_of(pending_)};
    pending_.clear();
    searched_ = 0;
  }

  /// What there is of the answer, a part of it where it does not end; false at its end.
  bool read_answer() {
    char block[1 << 16];
    for (int i = 0; i < kBlocksAtOnce; ++i) {
      const auto count = ::read(output_.number(), block, sizeof block);
      if (count == 0) return false;
      if (count < 0) return errno == EAGAIN || errno == EINTR;
      pending_.append(block, size_t(count));
    }
    return true;
  }

  /// Whole lines of its error output go to the log.
  void pass_on_errors() {
    char block[1 << 12];
    for (int i = 0; i < kBlocksAtOnce; ++i) {
      const auto count = ::read(errors_.number(), block, sizeof block);
      if (count <= 0) break;
      said_.append(block, size_t(count));
    }
    size_t begin = 0;
    for (auto line = said_.find('\n'); line != std::string::npos; line = said_.find('\n', begin)) {
      log_warning("reward command: " + said_.substr(begin, line - begin));
      begin = line + 1;
    }
    said_.erase(0, begin);
    if (said_.size() > kLongestSaid) log_warning("reward command: " + std::exchange(said_, {}));
  }

  bool is_gone() {
    int status = 0;
    if (!status_ && ::waitpid(process_, &status, WNOHANG) == process_) status_ = status;
    return status_.has_value();
  }

  std::string how_it_ended() {
    const auto end = Clock::now() + kTimeToLeave;
    while (!is_gone() && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    pass_on_errors();
    if (!said_.empty()) log_warning("reward command: " + std::exchange(said_, {}));
    if (!status_) return "it closed its output";
    if (WIFSIGNALED(*status_))
      return fmt::format("it was ended by signal {} ({})", WTERMSIG(*status_),
                         ::strsignal(WTERMSIG(*status_)));
    return fmt::format("it ended with exit code {} before it had answered", WEXITSTATUS(*status_));
  }

  pid_t process_ = -1;
  std::optional<int> status_;
  Descriptor input_, output_, errors_;
  std::string pending_;  ///< Read, but not yet a whole line.
  size_t searched_ = 0;  ///< So much of it holds no line break.
  std::string said_;     ///< The same of its error output.
};

/// The process and what is asked of it, kept by all copies of a reward.
class RewardCommand {
 public:
  RewardCommand(std::string name, CommandRewardOptions options)
      : name_(std::move(name)), options_(std::move(options)) {}

  std::vector<double> ask(const RewardInputs& in) {
    const auto question = dump_json(question_of(in)) + "\n";
    for (int64_t attempt = 0;; ++attempt) {
      try {
        if (!process_) process_ = std::make_unique<RewardProcess>(options_.command);
        return rewards_of(process_->ask(question, options_.timeout), in.completions.size());
      } catch (const UnaskedLine& line) {
        refuse("wrote more than one line for one question: " + line.text,
               "Answer every line with one line, and write everything else to the error output.");
      } catch (const NoAnswer& failure) {
        process_.reset();
        if (attempt >= options_.restarts)
          refuse(fmt::format("gives no rewards: {}", failure.reason),
                 fmt::format("It was started {} times for these {} completions. Run it by hand: it "
                             "reads lines of JSON and writes one line for each, and must flush its "
                             "output. --reward_timeout sets how long an answer may take.",
                             attempt + 1, in.completions.size()));
        log_warning(fmt::format("The reward command is started again: {}.", failure.reason));
      }
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& advice) const {
    throw Error("G-RWD-2", ErrorKind::training,
                fmt::format("the reward command '{}' {}", options_.command, what), advice);
  }

  static json question_of(const RewardInputs& in) {
    json question = {{"prompts", in.prompts}, {"completions", in.completions}};
    if (!in.prompt_messages.empty()) {
      question["prompts"] = in.prompt_messages;
      question["completions"] = in.completion_messages;
    }
    auto& columns = question["columns"] = json::object();
    for (const auto& [name, values] : in.columns) {
      auto& column = columns[name] = json::array();
      for (const auto& value : values) column.push_back(json(sources::json_from_value(value)));
    }
    return question;
  }

  std::vector<double> rewards_of(const std::string& line, size_t count) const {
    const std::string form = R"(Answer every line with one line {"rewards": [number, ...]}.)";
    json answer;
    try {
      answer = parse_json(line, "the answer");
    } catch (const Error&) {
      refuse(fmt::format("wrote a line that is not JSON: {}", beginning_of(line)), form);
    }
    if (!answer.is_object() || !answer.contains("rewards") || !answer["rewards"].is_array())
      refuse(fmt::format("wrote a line without rewards: {}", beginning_of(line)), form);
    const auto& list = answer["rewards"];
    if (list.size() != count)
      refuse(fmt::format("gave {} rewards for {} completions", list.size(), count), form);
    std::vector<double> rewards;
    for (size_t i = 0; i < count; ++i) {
      if (!list[i].is_number() && !list[i].is_null())
        refuse(fmt::format("gave {} as reward number {}", beginning_of(dump_json(list[i])), i),
               form);
      rewards.push_back(list[i].is_null() ? std::numeric_limits<double>::quiet_NaN()
                                          : list[i].get<double>());
      if (list[i].is_number() && !std::isfinite(rewards.back()))
        refuse(fmt::format("gave {} as reward number {}", dump_json(list[i]), i),
               "Give a finite number, or null when the reward does not apply.");
    }
    return rewards;
  }

  std::string name_;
  CommandRewardOptions options_;
  std::unique_ptr<RewardProcess> process_;
};

}  // namespace

Reward command_reward(const std::string& name, CommandRewardOptions options) {
  const auto command = std::make_shared<RewardCommand>(name, std::move(options));
  return {name, [command](const RewardInputs& in) { return command->ask(in); }};
}

}  // namespace gradus
