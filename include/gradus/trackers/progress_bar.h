#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace gradus {

/// What a `ProgressBar` counts and how often it draws.
struct ProgressBarOptions {
  /// Steps in all; 0 when nobody knows.
  int64_t total = 0;
  /// Steps done before, after a resume. They count in the bar, but not in the rate.
  int64_t initial = 0;
  /// Text at the front: "evaluating".
  std::string description = "";
  /// The shortest time between two drawings on a terminal.
  std::chrono::milliseconds redraw_interval{100};
  /// Elsewhere: the shortest time between two lines, of which there is one for every tenth …
  std::chrono::milliseconds line_interval{3000};
  /// … and the longest time without a line.
  std::chrono::milliseconds longest_silence{60000};
  /// The time; replaced in tests.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

/// How far a run is: share, rate, time left, and a word of the caller's (the loss).
///
/// Writes through the log sink's `print`. On a terminal one line is drawn over, and it is never
/// wider than the terminal: the drawn bar becomes shorter, then parts of the text are left out.
/// Elsewhere plain lines appear now and then. `update` costs a look at the clock when nothing is
/// due.
/// Thread-safety: none.
class ProgressBar {
 public:
  /// Draws the empty bar on a terminal.
  explicit ProgressBar(ProgressBarOptions options);
  /// Closes the bar.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Counts further steps and draws if a drawing is due.
  void update(int64_t steps = 1);
  /// Text at the end of the bar: "loss=0.25". Shown with the next drawing.
  void set_postfix(std::string text);
  /// Prints a line of the caller's without breaking the bar.
  void write(std::string_view line);
  /// Draws the last state and ends the line. Later calls do nothing.
  void close();

  /// Steps counted so far, those of `initial` included.
  int64_t done() const { return done_; }

 private:
  /// The text of the bar, in at most `columns`.
  std::string line(std::optional<size_t> columns) const;
  /// The columns that may be written to; none when the terminal does not say.
  std::optional<size_t> room() const;
  bool is_due(std::chrono::steady_clock::time_point now) const;
  void draw(std::chrono::steady_clock::time_point now);

  ProgressBarOptions options_;
  std::chrono::steady_clock::time_point start_, last_draw_;
  int64_t done_;
  int64_t next_tenth_ = 0;  // steps at which a plain line is due
  size_t drawn_width_ = 0;
  std::string postfix_;
  bool terminal_;
  bool closed_ = false;
};

/// 75 s as "01:15", 3700 s as "1:01:40".
std::string duration_text(double seconds);

}  // namespace gradus
