#include "data/sources/progress_line.h"

#include <fmt/format.h>
#include <gradus/core/log.h>

#include "data/sources/source_errors.h"

namespace gradus::sources {

using Clock = std::chrono::steady_clock;

ProgressLine::ProgressLine(std::string description, std::string unit, std::optional<int64_t> total)
    : description_(std::move(description)),
      unit_(std::move(unit)),
      total_(total),
      begin_(Clock::now()),
      drawn_(begin_) {
  on_terminal_ = !description_.empty() && log_sink()->is_terminal();
}

ProgressLine::~ProgressLine() {
  if (description_.empty()) return;
  try {
    if (on_terminal_)
      log_print("\r" + text(done_) + "\n");
    else
      log_info(text(done_));
  } catch (...) {  // a progress line is not worth an exception in a destructor
  }
}

void ProgressLine::update(int64_t done) {
  done_ = done;
  if (!on_terminal_ || Clock::now() - drawn_ < std::chrono::milliseconds(200)) return;
  drawn_ = Clock::now();
  log_print("\r" + text(done));
}

std::string ProgressLine::text(int64_t done) const {
  const double seconds =
      std::max(1e-9, std::chrono::duration<double>(Clock::now() - begin_).count());
  const auto speed = with_commas(int64_t(double(done) / seconds));
  if (!total_)
    return fmt::format("{}: {} {}, {}/s   ", description_, with_commas(done), unit_, speed);
  const auto percent = *total_ > 0 ? 100 * done / *total_ : 100;
  return fmt::format("{}: {} % {}/{} {}, {}/s   ", description_, percent, with_commas(done),
                     with_commas(*total_), unit_, speed);
}

}  // namespace gradus::sources
