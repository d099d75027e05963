#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace gradus {

/// What a progress bar shows, and how often.
struct ProgressBarOptions {
  int64_t total = 0;  ///< number of steps; 0 when it is not known
  int64_t initial =
      0;  ///< steps done before, after a resume; they count in the bar, not in the rate
  std::string description = "";                    ///< at the front of the line
  std::chrono::milliseconds redraw_interval{100};  ///< on a terminal
  std::chrono::milliseconds line_interval{
      3000};  ///< elsewhere: at most one line in this time, at every tenth …
  std::chrono::milliseconds longest_silence{60000};  ///< … and one at least every so often
  /// The time; replaced in tests.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

/// How far a run is: share, rate, time left, and a word of the caller's (the loss).
///
/// Writes through the log sink's `print`. On a terminal one line is drawn over; elsewhere plain
/// lines appear now and then. `update` costs a look at the clock when nothing is due.
/// Thread-safety: none.
class ProgressBar {
 public:
  /// Draws nothing yet.
  explicit ProgressBar(ProgressBarOptions options);
  /// Closes the bar.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// That many more steps are done. Draws if it is time.
  void update(int64_t steps = 1);
  /// Text at the end of the bar: "loss=0.25". Shown with the next drawing.
  void set_postfix(std::string text);
  /// Prints a line of the caller's without breaking the bar.
  void write(std::string_view line);
  /// Draws the last state and ends the line. Later calls do nothing.
  void close();

  /// Steps done, with those before a resume.
  int64_t done() const { return done_; }

 private:
  std::string line() const;
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
