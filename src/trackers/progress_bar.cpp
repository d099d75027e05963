#include <fmt/format.h>
#include <gradus/core/log.h>
#include <gradus/trackers/progress_bar.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "trackers/terminal_text.h"

namespace gradus {
namespace {

constexpr size_t kWidest = 24, kNarrowest = 6;  // characters of the drawn bar

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string drawn_bar(double share, size_t width) {
  constexpr std::array kEighths = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = std::min(size_t(share * double(width) * 8), width * 8);
  std::string bar;
  for (size_t i = 0; i < eighths / 8; ++i) bar += "█";
  if (eighths < width * 8) bar += kEighths[eighths % 8];
  for (size_t i = eighths / 8 + 1; i < width; ++i) bar += " ";
  return bar;
}

std::string rate_text(double rate) {
  if (!(rate > 0)) return "?it/s";
  return rate >= 1 ? fmt::format("{:.2f}it/s", rate) : fmt::format("{:.2f}s/it", 1 / rate);
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = int64_t(std::max(0.0, seconds));
  if (whole >= 3600)
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
}

ProgressBar::ProgressBar(ProgressBarOptions options)
    : options_(std::move(options)),
      start_(options_.now()),
      last_draw_(start_),
      done_(options_.initial),
      terminal_(log_sink()->is_terminal()) {
  if (options_.total > 0) next_tenth_ = (done_ * 10 / options_.total + 1) * options_.total / 10;
  if (terminal_) draw(start_);
}

ProgressBar::~ProgressBar() { close(); }

void ProgressBar::update(int64_t steps) {
  if (closed_) return;
  done_ += steps;
  const auto now = options_.now();
  if (is_due(now)) draw(now);
}

bool ProgressBar::is_due(Clock::time_point now) const {
  const auto quiet = now - last_draw_;
  if (terminal_) return quiet >= options_.redraw_interval;
  if (quiet >= options_.longest_silence) return true;
  return options_.total > 0 && done_ >= next_tenth_ && done_ < options_.total &&
         quiet >= options_.line_interval;
}

void ProgressBar::set_postfix(std::string text) { postfix_ = std::move(text); }

std::string ProgressBar::line(std::optional<size_t> columns) const {
  const double elapsed = seconds_between(start_, options_.now());
  const double rate = elapsed > 0 ? double(done_ - options_.initial) / elapsed : 0.0;
  const bool counts_down = options_.total > 0;
  const double share =
      counts_down ? std::clamp(double(done_) / double(options_.total), 0.0, 1.0) : 0.0;

  std::string front = options_.description.empty() ? "" : options_.description + ": ";
  const std::string percent = counts_down ? fmt::format("{:3.0f}%", std::floor(share * 100)) : "";
  const std::string count =
      counts_down ? fmt::format(" {}/{}", done_, options_.total) : fmt::format("{}it", done_);
  std::string time = duration_text(elapsed);
  if (counts_down)
    time += "<" + (rate > 0 ? duration_text(double(options_.total - done_) / rate) : "?");
  std::string speed = ", " + rate_text(rate);
  std::string postfix = postfix_.empty() ? "" : ", " + postfix_;

  const auto text = [&](const std::string& bar) {
    const auto times = time.empty() ? "" : " [" + time + speed + postfix + "]";
    return front + percent + bar + count + times;
  };
  // Too narrow: what is missed least goes first.
  for (auto* part : {&postfix, &speed, &front, &time}) {
    if (!columns || display_width(text("")) <= *columns) break;
    part->clear();
  }
  if (terminal_ && counts_down) {
    const size_t taken = display_width(text("||"));
    const size_t width = !columns            ? kWidest
                         : *columns <= taken ? 0
                                             : std::min(kWidest, *columns - taken);
    if (width >= kNarrowest) return text("|" + drawn_bar(share, width) + "|");
  }
  return columns ? std::string(cut_to_width(text(""), *columns)) : text("");
}

std::optional<size_t> ProgressBar::room() const {
  const auto columns = log_sink()->columns();
  if (!columns) return std::nullopt;
  // The last column stays free: some terminals begin a new line as soon as it is written.
  return size_t(std::max(1, *columns - 1));
}

void ProgressBar::draw(Clock::time_point now) {
  if (terminal_) {
    const auto columns = room();
    const auto text = line(columns);
    const size_t width = display_width(text);
    const size_t before = std::min(drawn_width_, columns.value_or(drawn_width_));
    log_print("\r" + text + std::string(before > width ? before - width : 0, ' '));
    drawn_width_ = width;
  } else {
    log_print(line(std::nullopt) + "\n");
    if (options_.total > 0) next_tenth_ = (done_ * 10 / options_.total + 1) * options_.total / 10;
  }
  last_draw_ = now;
}

void ProgressBar::write(std::string_view text) {
  if (terminal_ && !closed_) {
    const size_t drawn = std::min(drawn_width_, room().value_or(drawn_width_));
    log_print("\r" + std::string(drawn, ' ') + "\r" + std::string(text) + "\n");
    drawn_width_ = 0;
    draw(options_.now());
  } else {
    log_print(std::string(text) + "\n");
  }
}

void ProgressBar::close() {
  if (closed_) return;
  draw(options_.now());
  if (terminal_) log_print("\n");
  closed_ = true;
}

}  // namespace gradus
