#include "run_panel.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/trackers/progress_bar.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "runs/log_line.h"
#include "trackers/terminal_text.h"

namespace gradus::cli {
namespace {

constexpr size_t kLeastPlotWidth = 34, kLeastPlotHeight = 6, kBestPlotHeight = 13;

Style style_of(runs::RunStatus status) {
  switch (status) {
    case runs::RunStatus::running: return Style::good;
    case runs::RunStatus::failed:
    case runs::RunStatus::lost: return Style::bad;
    case runs::RunStatus::interrupted: return Style::warning;
    default: return Style::accent;
  }
}

std::string clock_text(double time) {
  if (time <= 0) return "";
  const auto whole = std::time_t(time);
  std::tm local{};
  ::localtime_r(&whole, &local);
  return fmt::format("{:02}:{:02}:{:02} ", local.tm_hour, local.tm_min, local.tm_sec);
}

std::string filled_bar(double share, size_t width) {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = size_t(std::clamp(share, 0.0, 1.0) * double(width) * 8);
  std::string bar;
  for (size_t i = 0; i < eighths / 8; ++i) bar += "█";
  return bar + kEighths[eighths % 8];
}

/// The newest value of a metric of the machine, if there is one.
std::optional<double> newest(const runs::RunData& run, const std::string& key) {
  const auto* series = run.find(key);
  return series != nullptr ? std::optional(series->last()) : std::nullopt;
}

std::string gigabytes(double bytes) { return fmt::format("{:.1f}", bytes / 1073741824.0); }

std::string machine_line(const PanelView& view) {
  const auto& run = view.run->data();
  std::vector<std::string> parts;
  if (view.gpus != nullptr)
    for (size_t i = 0; i < view.gpus->size(); ++i) {
      const auto& gpu = (*view.gpus)[i];
      auto text = fmt::format("GPU {} {:.0f} %", i, gpu.percent);
      if (gpu.memory_total > 0)
        text += fmt::format(" {}/{} GB", gigabytes(double(gpu.memory_used)),
                            gigabytes(double(gpu.memory_total)));
      if (gpu.watts > 0) text += fmt::format(" {:.0f} W", gpu.watts);
      parts.push_back(text);
    }
  if (view.gpus == nullptr || view.gpus->empty())
    for (int i = 0; i < 16; ++i)
      if (const auto busy = newest(run, fmt::format("system/gpu.{}.busy_percent", i)))
        parts.push_back(fmt::format("GPU {} {:.0f} %", i, *busy));
  if (parts.empty()) parts.push_back("no GPU");
  if (const auto busy = newest(run, "system/cpu.avg_util_percent"))
    parts.push_back(fmt::format("CPU {:.0f} %", *busy));
  if (const auto used = newest(run, "system/memory_percent"))
    parts.push_back(fmt::format("memory {:.0f} %", *used));
  if (const auto own = newest(run, "system/proc.memory.rssMB"))
    parts.push_back(fmt::format("process {:.1f} GB", *own / 1024));
  if (const auto disk = newest(run, "system/disk./.usagePercent"))
    parts.push_back(fmt::format("disk {:.0f} %", *disk));
  std::string line;
  for (const auto& part : parts) line += (line.empty() ? "" : " · ") + part;
  return line;
}

std::string checkpoints_line(const PanelView& view, size_t room) {
  if (view.checkpoints.empty()) return "no checkpoints";
  const auto& best = view.run->data().best_checkpoint;
  std::string line;
  size_t shown = 0;
  for (auto step = view.checkpoints.rbegin(); step != view.checkpoints.rend(); ++step, ++shown) {
    auto text = std::to_string(*step);
    if (best == "checkpoint-" + text) text += " (best)";
    if (line.size() + text.size() + 30 > room && shown > 0) break;
    line = text + (line.empty() ? "" : ", ") + line;
  }
  const size_t left = view.checkpoints.size() - shown;
  return fmt::format("checkpoints {}{}", left > 0 ? fmt::format("({} more), ", left) : "", line);
}

/// Where the run stands, in three lines.
void draw_head(TextGrid& grid, const Area& area, const PanelView& view) {
  const auto& run = view.run->data();
  const auto status = runs::status_of(run, view.now);
  std::string said = runs::status_name(status);
  if (status == runs::RunStatus::unknown) said = run.series.empty() ? "nothing yet" : "";
  const size_t left_of_status = area.width > said.size() + 1 ? area.width - said.size() - 1 : 0;
  grid.put(area.x, area.y, view.name, Style::bold, left_of_status);
  grid.put_right(area.x + area.width, area.y, said, style_of(status));

  const auto percent =
      run.max_steps > 0
          ? fmt::format(" {:3.0f} % {}/{}", 100.0 * double(run.step) / double(run.max_steps),
                        run.step, run.max_steps)
          : fmt::format("step {}", run.step);
  const auto width = area.width > percent.size() + 2 ? area.width - percent.size() - 2 : 0;
  if (run.max_steps > 0 && width > 5) {
    for (size_t i = 0; i < width; ++i) grid.put(area.x + i, area.y + 1, "·", Style::dim);
    grid.put(area.x, area.y + 1, filled_bar(double(run.step) / double(run.max_steps), width),
             style_of(status), width);
    grid.put(area.x + width, area.y + 1, percent);
  } else {
    grid.put(area.x, area.y + 1, percent);
  }

  std::vector<std::string> parts;
  if (run.epoch > 0) parts.push_back(fmt::format("epoch {:.2f}", run.epoch));
  const double rate = run.steps_per_second();
  if (run.session_began > 0) {
    const double until = status == runs::RunStatus::running ? view.now : run.last_sign;
    parts.push_back(duration_text(until - run.session_began) + " passed");
  }
  if (status == runs::RunStatus::running && rate > 0 && run.max_steps > run.step) {
    // Steps since the last sign of life have been made, too.
    const double left = double(run.max_steps - run.step) / rate - (view.now - run.last_sign);
    parts.push_back(duration_text(std::max(left, 0.0)) + " left");
  }
  if (rate > 0)
    parts.push_back(rate >= 1 ? fmt::format("{:.3g} steps/s", rate)
                              : fmt::format("{:.3g} s/step", 1 / rate));
  if (status == runs::RunStatus::running && view.now - run.last_sign > 30)
    parts.push_back("silent for " + duration_text(view.now - run.last_sign));
  if (!run.end_reason.empty()) parts.push_back(run.end_reason);
  if (const auto left = view.run->bytes_left(); left > (size_t(1) << 20))
    parts.push_back(fmt::format("reading, {} MB left", left >> 20));
  std::string line;
  for (const auto& part : parts) line += (line.empty() ? "" : " · ") + part;
  grid.put(area.x, area.y + 2, line, Style::dim, area.width);
}

void draw_plots(TextGrid& grid, const Area& area, const PanelView& view) {
  const auto keys = plotted_keys(view.run->data(), view.metrics);
  const size_t first = keys.empty() ? 0 : std::min(view.first_plot, keys.size() - 1);
  const size_t wanted = keys.size() - first;
  if (wanted == 0 || area.height < kLeastPlotHeight - 2) return;
  size_t columns = std::clamp<size_t>(area.width / kLeastPlotWidth, 1, wanted);
  const size_t most_rows = std::max<size_t>(area.height / kLeastPlotHeight, 1);
  const size_t good_rows = std::max<size_t>(area.height / kBestPlotHeight, 1);
  // Few curves get wide plots; rows are added while they stay readable.
  size_t rows = std::min(most_rows, (wanted + columns - 1) / columns);
  while (columns > 1 && rows < good_rows && wanted <= (columns - 1) * (rows + 1)) {
    --columns;
    rows = (wanted + columns - 1) / columns;
  }
  for (size_t i = 0; i < std::min(wanted, rows * columns); ++i) {
    const size_t column = i % columns, row = i / columns;
    const size_t left = area.width * column / columns, right = area.width * (column + 1) / columns;
    const size_t top = area.height * row / rows, bottom = area.height * (row + 1) / rows;
    const size_t gap = column + 1 < columns ? 2 : 0;
    const auto* series = view.run->data().find(keys[first + i]);
    if (series != nullptr)
      draw_plot(grid, {area.x + left, area.y + top, right - left - gap, bottom - top},
                keys[first + i], *series, view.plots);
  }
}

}  // namespace

std::string message_line(const runs::RunMessage& message) {
  const auto clock = clock_text(message.time);
  if (!message.level.empty())
    return clock + (message.level == "info" ? "" : message.level + ": ") + message.text;
  std::string step, line;
  runs::read_log_line(message.text, [&](std::string_view key, double value) {
    if (key == "step")
      step = fmt::format("step {:.0f}", value);
    else if (key != "time" && key != "epoch" && key != "total_flos")
      line += fmt::format("  {} {}", key, short_number(value));
  });
  return clock + step + line;
}

std::vector<std::string> plotted_keys(const runs::RunData& run,
                                      const std::vector<std::string>& wanted) {
  if (!wanted.empty()) return wanted;
  std::vector<std::string> keys;
  for (const auto& [key, series] : run.series)
    if (series.size() > 0 && runs::curve_rank(key) < 30) keys.push_back(key);
  std::stable_sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) {
    return runs::curve_rank(a) < runs::curve_rank(b);
  });
  return keys;
}

void draw_panel(TextGrid& grid, const Area& area, const PanelView& view) {
  const size_t head = 3;
  const size_t tail = area.height < 14 ? 3 : area.height < 40 ? 6 : 12;
  draw_head(grid, area, view);
  if (area.height < head + tail) return;
  draw_plots(grid, {area.x, area.y + head, area.width, area.height - head - tail}, view);
  size_t y = area.y + area.height - tail;
  grid.put(area.x, y++, machine_line(view), Style::plain, area.width);
  grid.put(area.x, y++, checkpoints_line(view, area.width), Style::plain, area.width);
  const auto& messages = view.run->data().messages;
  const size_t lines = tail - 2;
  for (size_t i = messages.size() > lines ? messages.size() - lines : 0; i < messages.size(); ++i)
    grid.put(area.x, y++, message_line(messages[i]),
             messages[i].level == "warning" ? Style::warning
             : messages[i].level == "error" ? Style::bad
                                            : Style::dim,
             area.width);
}

}  // namespace gradus::cli
