#pragma once

#include <string>
#include <vector>

#include "braille_plot.h"
#include "device/nvml.h"
#include "runs/run_reader.h"

namespace gradus::cli {

/// What `gradus watch` shows of a run beside its log.
struct PanelView {
  std::string name;
  const runs::RunReader* run = nullptr;
  std::vector<int64_t> checkpoints = {};              ///< steps of the checkpoints, ascending
  const std::vector<device::GpuUse>* gpus = nullptr;  ///< of this machine
  double now = 0;                                     ///< seconds since 1970
  PlotOptions plots = {};
  std::vector<std::string> metrics = {};  ///< the curves wanted; empty: those that matter most
  size_t first_plot = 0;                  ///< curves passed over
};

/// Draws one run into `area`: where it stands, curves, the machine, checkpoints, the last lines.
void draw_panel(TextGrid& grid, const Area& area, const PanelView& view);

/// An entry of a log as a line: "step 120  loss 2.71  learning_rate 5e-05"; other messages as they
/// are.
std::string message_line(const runs::RunMessage& message);

/// The curves that a panel draws, in their order.
std::vector<std::string> plotted_keys(const runs::RunData& run,
                                      const std::vector<std::string>& wanted);

}  // namespace gradus::cli
