#include "terminal_screen.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

namespace gradus::cli {
namespace {

volatile sig_atomic_t g_screen_stop = 0;

void send(std::string_view text) {
  while (!text.empty()) {
    const auto count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(size_t(count));
  }
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;  // without SA_RESTART: poll comes back
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

TerminalScreen::TerminalScreen() {
  ::tcgetattr(STDIN_FILENO, &before_);
  auto raw = before_;
  raw.c_lflag &= ~tcflag_t(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  g_screen_stop = 0;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) handle(signal, [](int) { g_screen_stop = 1; });
  handle(SIGWINCH, [](int) {});
  send("\x1b[?1049h\x1b[?25l");
}

TerminalScreen::~TerminalScreen() {
  send("\x1b[?25h\x1b[?1049l");
  ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

std::pair<size_t, size_t> TerminalScreen::size() const {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {80, 24};
  return {size.ws_col, size.ws_row};
}

void TerminalScreen::show(const TextGrid& page) {
  const std::pair now{page.width(), page.height()};
  std::string text;
  if (now != shown_size_) {
    shown_.clear();
    shown_size_ = now;
    text = "\x1b[2J";
  }
  shown_.resize(page.height());
  for (size_t y = 0; y < page.height(); ++y) {
    auto line = page.coloured_line(y);
    if (line == shown_[y]) continue;
    text += fmt::format("\x1b[{};1H{}", y + 1, line);
    shown_[y] = std::move(line);
  }
  send(text);
}

std::optional<std::string> TerminalScreen::key(std::chrono::milliseconds patience) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  const int ready = ::poll(&input, 1, int(patience.count()));
  if (g_screen_stop != 0) return "q";
  if (ready <= 0) return std::nullopt;
  char bytes[8] = {};
  const auto count = ::read(STDIN_FILENO, bytes, sizeof bytes - 1);
  if (count <= 0)
    return count < 0 && (errno == EINTR || errno == EAGAIN) ? std::nullopt
                                                            : std::optional<std::string>("q");
  const std::string_view text(bytes, size_t(count));
  if (text.starts_with("\x1b[") || text.starts_with("\x1bO")) {
    if (text.size() < 3) return std::nullopt;
    switch (text[2]) {
      case 'A': return "up";
      case 'B': return "down";
      case 'C': return "right";
      case 'D': return "left";
      default: return std::nullopt;
    }
  }
  return std::string(text.substr(0, 1));
}

}  // namespace gradus::cli
