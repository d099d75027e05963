// The progress bar on a real pseudo-terminal: what it writes never wraps.
#include <fcntl.h>
#include <gradus/core/log.h>
#include <gradus/trackers/progress_bar.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>

#include "trackers/terminal_text.h"

namespace gradus {
namespace {

/// Makes stderr a terminal of the given width, for as long as it lives.
class Terminal {
 public:
  explicit Terminal(int columns) : before_(::dup(STDERR_FILENO)), sink_(set_log_sink(nullptr)) {
    master_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) return;
    const int slave = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    termios mode{};
    ::tcgetattr(slave, &mode);
    ::cfmakeraw(&mode);
    ::tcsetattr(slave, TCSANOW, &mode);
    is_open_ = ::dup2(slave, STDERR_FILENO) >= 0;
    ::close(slave);
    resize(columns);
  }
  ~Terminal() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    if (master_ >= 0) ::close(master_);
    set_log_sink(sink_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool is_open() const { return is_open_; }
  void resize(int columns) const {
    const winsize size{24, static_cast<unsigned short>(columns), 0, 0};
    ::ioctl(master_, TIOCSWINSZ, &size);
  }
  std::string written() const {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(master_, buffer, sizeof buffer)) > 0;)
      text.append(buffer, size_t(n));
    return text;
  }

 private:
  int before_, master_ = -1;
  std::shared_ptr<LogSink> sink_;
  bool is_open_ = false;
};

/// The columns of the widest line, lines ending where the cursor goes back.
size_t widest_line(const std::string& text) {
  size_t widest = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find_first_of("\r\n", begin), text.size());
    widest = std::max(widest, display_width(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return widest;
}

/// A bar whose clock goes on by a second whenever it is looked at.
ProgressBarOptions options_of(const std::string& description) {
  auto time = std::chrono::steady_clock::time_point{};
  return {
      .total = 12000, .description = description, .redraw_interval = {}, .now = [time]() mutable {
        return time += std::chrono::seconds(1);
      }};
}

TEST(ProgressBarOnATerminal, FitsEveryWidth) {
  for (const int columns : {200, 80, 60, 40, 30, 20, 12, 8, 4, 2, 1}) {
    const Terminal terminal(columns);
    if (!terminal.is_open()) GTEST_SKIP() << "no pseudo-terminal can be opened here";
    ProgressBar bar(options_of("evaluating"));
    bar.set_postfix("loss=0.123456, epoch=1.5, lr=5e-5");
    bar.update(600);
    const auto text = terminal.written();
    EXPECT_LE(widest_line(text), std::max(1, columns - 1)) << columns << " columns: " << text;
    EXPECT_FALSE(text.empty());
    EXPECT_TRUE(columns < 20 || text.find("600/12000") != std::string::npos) << text;
    EXPECT_TRUE(columns < 8 || text.find("5%") != std::string::npos) << text;
  }
}

TEST(ProgressBarOnATerminal, ShrinksTheBarBeforeItLeavesOutText) {
  const Terminal terminal(80);
  if (!terminal.is_open()) GTEST_SKIP() << "no pseudo-terminal can be opened here";
  ProgressBar bar(options_of(""));
  bar.set_postfix("loss=0.123456, lr=5e-5");
  bar.update(6000);
  const auto text = terminal.written();
  EXPECT_NE(text.find(" 50%|"), std::string::npos) << text;
  EXPECT_NE(text.find("lr=5e-5]"), std::string::npos) << text;
  terminal.resize(60);
  bar.update(600);
  const auto narrow = terminal.written();
  EXPECT_NE(narrow.find(" 55%|"), std::string::npos) << "what is left out makes room: " << narrow;
  EXPECT_EQ(narrow.find("lr=5e-5]"), std::string::npos) << narrow;
}

TEST(ProgressBarOnATerminal, CountsWideAndCombiningCharacters) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("評価"), 4u);
  EXPECT_EQ(display_width("e\u0301"), 1u);
  EXPECT_EQ(display_width("█▏"), 2u);
  EXPECT_EQ(cut_to_width("評価中", 5), "評価");
  EXPECT_EQ(cut_to_width("abc", 9), "abc");
  for (const int columns : {60, 44, 20, 9}) {
    const Terminal terminal(columns);
    if (!terminal.is_open()) GTEST_SKIP() << "no pseudo-terminal can be opened here";
    ProgressBar bar(options_of("評価中"));
    bar.set_postfix("損失=0.25, 学習率=0.001");
    bar.update(600);
    EXPECT_LT(widest_line(terminal.written()), size_t(columns));
  }
}

TEST(ProgressBarOnATerminal, FollowsAResize) {
  const Terminal terminal(100);
  if (!terminal.is_open()) GTEST_SKIP() << "no pseudo-terminal can be opened here";
  ProgressBar bar(options_of("training"));
  bar.set_postfix("loss=0.123456");
  bar.update(600);
  EXPECT_GT(widest_line(terminal.written()), 60u);
  terminal.resize(40);
  bar.update(600);
  EXPECT_LT(widest_line(terminal.written()), 40u) << "what is wiped counts too";
  bar.write("short");
  EXPECT_LT(widest_line(terminal.written()), 40u);
  terminal.resize(100);
  bar.update(600);
  EXPECT_GT(widest_line(terminal.written()), 60u);
}

TEST(ProgressBarOnATerminal, TakesColumnsWhereTheTerminalDoesNotSay) {
  const Terminal terminal(0);
  if (!terminal.is_open()) GTEST_SKIP() << "no pseudo-terminal can be opened here";
  const char* before = std::getenv("COLUMNS");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("COLUMNS", "33", 1);
  EXPECT_EQ(log_sink()->columns(), 33);
  ::setenv("COLUMNS", "many", 1);
  EXPECT_EQ(log_sink()->columns(), 80);
  ::unsetenv("COLUMNS");
  EXPECT_EQ(log_sink()->columns(), 80);
  terminal.resize(50);
  ::setenv("COLUMNS", "33", 1);
  EXPECT_EQ(log_sink()->columns(), 50) << "what the terminal says is newer";
  if (before == nullptr)
    ::unsetenv("COLUMNS");
  else
    ::setenv("COLUMNS", kept.c_str(), 1);
}

}  // namespace
}  // namespace gradus
