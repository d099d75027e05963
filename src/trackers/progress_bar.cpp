#include <fmt/format.h>
#include <gradus/core/log.h>
#include <gradus/trackers/progress_bar.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace gradus {
namespace {

constexpr int kWidth = 24;  // characters of the drawn bar

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string drawn_bar(double share) {
  constexpr std::array kEighths = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = std::clamp(int(share * kWidth * 8), 0, kWidth * 8);
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  if (eighths < kWidth * 8) bar += kEighths[size_t(eighths % 8)];
  for (int i = eighths / 8 + 1; i < kWidth; ++i) bar += " ";
  return bar;
}

size_t visible_width(const std::string& text) {
  return size_t(
      std::count_if(text.begin(), text.end(), [](char c) { return (uint8_t(c) & 0xc0) != 0x80; }));
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

std::string ProgressBar::line() const {
  const double elapsed = seconds_between(start_, options_.now());
  const double rate = elapsed > 0 ? double(done_ - options_.initial) / elapsed : 0.0;
  const std::string front = options_.description.empty() ? "" : options_.description + ": ";
  const std::string postfix = postfix_.empty() ? "" : ", " + postfix_;
  if (options_.total <= 0)
    return fmt::format("{}{}it [{}, {}{}]", front, done_, duration_text(elapsed), rate_text(rate),
                       postfix);
  const double share = std::min(1.0, double(done_) / double(options_.total));
  const std::string left = rate > 0 ? duration_text(double(options_.total - done_) / rate) : "?";
  const std::string bar = terminal_ ? "|" + drawn_bar(share) + "|" : "";
  return fmt::format("{}{:3.0f}%{} {}/{} [{}<{}, {}{}]", front, std::floor(share * 100), bar, done_,
                     options_.total, duration_text(elapsed), left, rate_text(rate), postfix);
}

void ProgressBar::draw(Clock::time_point now) {
  const auto text = line();
  if (terminal_) {
    const size_t width = visible_width(text);
    log_print("\r" + text + std::string(drawn_width_ > width ? drawn_width_ - width : 0, ' '));
    drawn_width_ = width;
  } else {
    log_print(text + "\n");
    if (options_.total > 0) next_tenth_ = (done_ * 10 / options_.total + 1) * options_.total / 10;
  }
  last_draw_ = now;
}

void ProgressBar::write(std::string_view text) {
  if (terminal_ && !closed_) {
    log_print("\r" + std::string(drawn_width_, ' ') + "\r" + std::string(text) + "\n");
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
