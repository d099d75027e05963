#include "study_panel.h"

#include <fmt/format.h>
#include <gradus/core/json.h>

#include <algorithm>
#include <cmath>

namespace gradus::cli {
namespace {

constexpr size_t kHead = 3, kLeastPlot = 6, kBestPlot = 14;

std::string lower(std::string word) {
  for (char& letter : word) letter = char(std::tolower(static_cast<unsigned char>(letter)));
  return word;
}

std::string state_word(const search::FrozenTrial& trial) {
  const bool is_left = trial.state == search::TrialState::running && !search::is_under_way(trial);
  return is_left ? "left" : lower(search::state_name(trial.state));
}

std::string parameters_text(const search::FrozenTrial& trial) {
  std::string text;
  const auto params = trial.params();
  for (const auto& [name, value] : params.items())
    text += fmt::format("  {} {}", name,
                        value.is_number_float() ? short_number(value.get<double>())
                        : value.is_string()     ? value.get<std::string>()
                                                : dump_json(value));
  return text;
}

Style style_of_trial(const search::FrozenTrial& trial, bool is_best) {
  if (is_best) return Style::good;
  switch (trial.state) {
    case search::TrialState::fail: return Style::bad;
    case search::TrialState::pruned: return Style::dim;
    case search::TrialState::running: return Style::accent;
    default: return Style::plain;
  }
}

/// Which trials were better than all before them.
std::vector<bool> improvements(const search::RecordedStudy& study) {
  const auto best = study.best_so_far();
  std::vector<bool> is_better(best.size());
  for (size_t i = 0; i < best.size(); ++i)
    is_better[i] = !std::isnan(best[i]) && (i == 0 || !(best[i - 1] == best[i]));
  return is_better;
}

}  // namespace

bool is_running(const runs::FoundStudy& found) {
  return std::any_of(found.study.trials.begin(), found.study.trials.end(),
                     [](const auto& trial) { return search::is_under_way(trial); });
}

std::string study_line(const runs::FoundStudy& found) {
  std::map<std::string, size_t> counts;
  for (const auto& trial : found.study.trials) ++counts[state_word(trial)];
  auto line = fmt::format("{} trials", found.study.trials.size());
  for (const auto& [state, count] : counts) line += fmt::format(" · {} {}", count, state);
  const bool is_less = found.study.direction == search::Direction::minimize;
  return line + fmt::format(" · {} {}", is_less ? "minimize" : "maximize", found.metric());
}

std::string best_line(const runs::FoundStudy& found) {
  const auto best = found.study.best();
  if (!best) return "no trial is complete yet";
  const auto& trial = found.study.trials[*best];
  return fmt::format("best {} of trial {}{}", short_number(*trial.value), trial.number,
                     parameters_text(trial));
}

std::string trial_line(const search::FrozenTrial& trial, bool is_best) {
  std::string value;
  if (trial.value)
    value = short_number(*trial.value);
  else if (const auto step = trial.last_step())
    value = short_number(trial.intermediate_values.at(*step));
  auto line = fmt::format("{:>5} {:<8} {:>10} {}", trial.number, state_word(trial), value,
                          is_best ? "*" : " ");
  if (!trial.is_finished() && trial.last_step())
    line += fmt::format("  step {}", *trial.last_step());
  return line + parameters_text(trial);
}

std::vector<std::string> trial_lines(const runs::FoundStudy& found) {
  const auto best = improvements(found.study);
  std::vector<std::string> lines;
  for (size_t i = 0; i < best.size(); ++i)
    lines.push_back(trial_line(found.study.trials[i], best[i]));
  return lines;
}

void draw_study(TextGrid& grid, const Area& area, const runs::FoundStudy& found,
                const PlotOptions& plots, size_t back) {
  const auto& study = found.study;
  const std::string said = is_running(found) ? "running" : "";
  const auto room = area.width > said.size() + 1 ? area.width - said.size() - 1 : 0;
  grid.put(area.x, area.y, fmt::format("{} ({})", study.name, found.file.string()), Style::bold,
           room);
  grid.put_right(area.x + area.width, area.y, said, Style::good);
  grid.put(area.x, area.y + 1, study_line(found), Style::plain, area.width);
  grid.put(area.x, area.y + 2, best_line(found), Style::good, area.width);

  size_t y = area.y + kHead;
  const auto bottom = area.y + area.height;
  const auto best = study.best_so_far();
  runs::Series curve;
  for (size_t i = 0; i < best.size(); ++i)
    if (!std::isnan(best[i])) curve.add(study.trials[i].number, best[i], 0);
  if (area.height >= kHead + kLeastPlot + 6 && curve.size() > 1) {
    const size_t height = std::clamp(area.height / 3, kLeastPlot, kBestPlot);
    draw_plot(grid, {area.x, y, area.width, height}, "best so far", curve, plots);
    y += height;
  }
  if (y >= bottom) return;
  const auto is_better = improvements(study);
  const size_t rows = bottom - y;
  const size_t end = best.size() - std::min(back, best.size() > rows ? best.size() - rows : 0);
  for (size_t i = end > rows ? end - rows : 0; i < end; ++i, ++y)
    grid.put(area.x, y, trial_line(study.trials[i], is_better[i]),
             style_of_trial(study.trials[i], is_better[i]), area.width);
}

}  // namespace gradus::cli
