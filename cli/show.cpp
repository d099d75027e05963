// Run folders as a table and curves in the terminal.
#include <fmt/format.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/train/trainer_state.h>

#include <cmath>

#include "cli.h"

namespace gradus::cli {
namespace {

namespace fs = std::filesystem;

struct RunView {
  std::string name;
  TrainerState state;
};

RunView open_run(const fs::path& directory) {
  if (!fs::is_directory(directory))
    throw Error("G-CLI-5", ErrorKind::usage, directory.string() + ": there is no such folder",
                "Name a run folder or a checkpoint.");
  auto file = directory / "trainer_state.json";
  if (!fs::exists(file))
    if (const auto newest = newest_checkpoint(directory))
      file = newest->path / "trainer_state.json";
  if (!fs::exists(file))
    throw Error("G-CLI-5", ErrorKind::checkpoint,
                directory.string() + " holds no trainer_state.json",
                "Name a folder that training wrote.");
  return {directory.string(), TrainerState::load_from_json(file)};
}

using Curve = std::vector<std::pair<double, double>>;

Curve curve_of(const TrainerState& state, const std::string& key) {
  Curve curve;
  for (const auto& entry : state.log_history)
    if (entry.contains(key) && entry[key].is_number())
      curve.emplace_back(entry.value("step", 0.0), entry[key].get<double>());
  return curve;
}

// One line of block characters; the width is cut into even spans of steps, each shown by its mean.
std::string spark(const Curve& curve, double least, double most, size_t width) {
  constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (curve.empty()) return "";
  const double first = curve.front().first, span = std::max(curve.back().first - first, 1.0);
  std::vector<double> sum(width), count(width);
  for (const auto& [step, value] : curve) {
    if (!std::isfinite(value)) continue;
    const auto column = std::min(width - 1, size_t((step - first) / span * double(width)));
    sum[column] += value;
    count[column] += 1;
  }
  std::string line;
  for (size_t i = 0; i < width; ++i) {
    if (count[i] == 0) {
      line += " ";
      continue;
    }
    const double height = most > least ? (sum[i] / count[i] - least) / (most - least) : 0.5;
    line += kBlocks[std::clamp(int(height * 8), 0, 7)];
  }
  return line;
}

std::vector<std::string> metric_keys(const std::vector<RunView>& runs) {
  std::vector<std::string> keys;
  for (const auto& run : runs)
    for (const auto& entry : run.state.log_history)
      for (const auto& [key, value] : entry.items()) {
        const bool is_speed =
            key.ends_with("_runtime") || key.ends_with("_per_second") || key.starts_with("train_");
        if (value.is_number() && !is_speed && key != "step" && key != "epoch" &&
            key != "total_flos" && std::find(keys.begin(), keys.end(), key) == keys.end())
          keys.push_back(key);
      }
  return keys;
}

void print_curves(const std::vector<RunView>& runs, const std::string& key) {
  double least = INFINITY, most = -INFINITY;
  size_t name_width = 0;
  for (const auto& run : runs) {
    name_width = std::max(name_width, run.name.size());
    for (const auto& [step, value] : curve_of(run.state, key)) {
      if (!std::isfinite(value)) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  print_line(fmt::format("\n{}  ({:.4g} to {:.4g})", key, least, most));
  for (const auto& run : runs) {
    const auto curve = curve_of(run.state, key);
    if (curve.empty()) continue;
    print_line(fmt::format("  {:<{}} {} {:.4g} -> {:.4g}", run.name, name_width,
                           spark(curve, least, most, 60), curve.front().second,
                           curve.back().second));
  }
}

nlohmann::json summary(const RunView& run) {
  nlohmann::json last = nlohmann::json::object();
  for (const auto& entry : run.state.log_history)
    for (const auto& [key, value] : entry.items()) last[key] = value;
  return {{"run", run.name},
          {"global_step", run.state.global_step},
          {"max_steps", run.state.max_steps},
          {"epoch", run.state.epoch},
          {"best_metric", run.state.best_metric ? nlohmann::json(*run.state.best_metric)
                                                : nlohmann::json(nullptr)},
          {"last", last},
          {"log_history", run.state.log_history}};
}

}  // namespace

int show(Words words) {
  std::vector<std::string> rest(words.begin(), words.end());
  const bool json = take_json_flag(rest);
  if (rest.empty() || rest[0] == "--help" || rest[0] == "-h") {
    if (rest.empty())
      throw Error("G-CLI-4", ErrorKind::usage,
                  "gradus show takes one or more run folders, received none",
                  "usage: gradus show DIR… [--json]");
    print_line(
        "usage: gradus show DIR… [--json]\n\nRun folders (or checkpoints) as a table and curves, "
        "several side by side.");
    return 0;
  }
  std::vector<RunView> runs;
  for (const auto& word : rest) runs.push_back(open_run(word));
  if (json) {
    auto document = nlohmann::json::array();
    for (const auto& run : runs) document.push_back(summary(run));
    print_line(dump_json(document, 2));
    return 0;
  }
  size_t width = 4;
  for (const auto& run : runs) width = std::max(width, run.name.size());
  print_line(fmt::format("{:<{}}  {:>9}  {:>9}  {:>8}  {:>10}  {:>10}  {:>10}", "run", width,
                         "step", "of", "epoch", "loss", "eval_loss", "best"));
  for (const auto& run : runs) {
    const auto loss = curve_of(run.state, "loss"), eval_loss = curve_of(run.state, "eval_loss");
    const auto text = [](const Curve& curve) {
      return curve.empty() ? std::string("-") : fmt::format("{:.4g}", curve.back().second);
    };
    print_line(fmt::format(
        "{:<{}}  {:>9}  {:>9}  {:>8.3g}  {:>10}  {:>10}  {:>10}", run.name, width,
        run.state.global_step, run.state.max_steps, run.state.epoch, text(loss), text(eval_loss),
        run.state.best_metric ? fmt::format("{:.4g}", *run.state.best_metric) : "-"));
  }
  for (const auto& key : metric_keys(runs)) print_curves(runs, key);
  return 0;
}

}  // namespace gradus::cli
