#pragma once

#include <string>
#include <vector>

#include "braille_plot.h"
#include "runs/study_folder.h"

namespace gradus::cli {

/// A study in words: how many trials there are and what has become of them.
std::string study_line(const runs::FoundStudy& found);
/// The best trial in words: its value, its number and its parameters.
std::string best_line(const runs::FoundStudy& found);
/// A trial as a line: number, state, value, parameters. `is_best`: it was the best when it ended.
std::string trial_line(const search::FrozenTrial& trial, bool is_best);
/// `trial_line` of all trials, in the order of their numbers.
std::vector<std::string> trial_lines(const runs::FoundStudy& found);
/// Whether somebody works on a trial of the study.
bool is_running(const runs::FoundStudy& found);

/// Draws a study into `area`: where it stands, the best value so far as a curve, and a line a
/// trial, the newest last. `back` lines at the end are passed over.
void draw_study(TextGrid& grid, const Area& area, const runs::FoundStudy& found,
                const PlotOptions& plots, size_t back);

}  // namespace gradus::cli
