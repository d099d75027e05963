#pragma once

#include <termios.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text_grid.h"

namespace gradus::cli {

/// The terminal as a page that is drawn over, and its keys.
///
/// While one lives, the terminal shows its second page, without cursor and echo. The destructor
/// puts everything back. One at a time, on the main thread.
class TerminalScreen {
 public:
  TerminalScreen();
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  /// Columns and lines now.
  std::pair<size_t, size_t> size() const;
  /// Shows the page. Only lines that have changed are sent, for slow lines.
  void show(const TextGrid& page);
  /// Waits for a key, at most this long, or until the terminal changes its size. A key is one
  /// character, or "left", "right", "up", "down". None when no key came. "q" also after SIGINT,
  /// SIGTERM or SIGHUP, and when the terminal is gone.
  std::optional<std::string> key(std::chrono::milliseconds patience);

 private:
  termios before_{};
  std::vector<std::string> shown_;
  std::pair<size_t, size_t> shown_size_{};
};

}  // namespace gradus::cli
