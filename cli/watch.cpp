// Runs in the terminal: curves, progress, machine, checkpoints and the last lines, live.
#include <fmt/format.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/config/option_set.h>
#include <gradus/core/error.h>
#include <gradus/core/printable.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "cli.h"
#include "reference.h"
#include "run_panel.h"
#include "study_panel.h"
#include "terminal_screen.h"

namespace gradus::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

struct WatchFlags {
  bool once = false;
  double interval = 0.5;
  std::optional<std::vector<std::string>> metrics = std::nullopt;
  double smoothing = 0;
  bool log_axis = false;
};
constexpr OptionRow<WatchFlags> kWatchRows[] = {
    {&WatchFlags::once, "once", Group::output, any_value(),
     "Prints what there is now as plain text, and ends."},
    {&WatchFlags::interval, "interval", Group::output, at_least(0.05),
     "Seconds between two looks at the files."},
    {&WatchFlags::metrics, "metrics", Group::output, any_value(),
     "The curves to draw; unset: those that matter most."},
    {&WatchFlags::smoothing, "smoothing", Group::output, within_below(0, 1),
     "Weight of the past in a moving average; 0: none."},
    {&WatchFlags::log_axis, "log_axis", Group::output, any_value(),
     "Draws values on a logarithmic axis where all are above 0."},
};

constexpr const char* kWatchUsage = "usage: gradus watch DIR|FILE… [--flags]";
constexpr size_t kLeastPanel = 38;          // columns of a run beside others
constexpr auto kReadingTime = 150ms;        // before the first page, and between two
constexpr size_t kPiece = size_t(8) << 20;  // bytes read between two looks at the clock

/// The runs that are watched, and what is known about them.
class WatchedRuns {
 public:
  explicit WatchedRuns(const std::vector<fs::path>& places) {
    for (const auto& place : places) places_.push_back(plain_path(place));
    look();
  }

  /// Reads what is new. Returns when all is read, or after a while.
  bool read() {
    if (Clock::now() >= next_look_) look();
    const auto deadline = Clock::now() + kReadingTime;
    bool changed = false;
    for (bool more = true; more && Clock::now() < deadline;) {
      more = false;
      for (auto& run : runs_) {
        changed |= run.reader.poll(kPiece);
        more |= run.reader.bytes_left() > 0;
      }
      if (more && !changed) break;  // an unfinished line
    }
    return changed;
  }

  bool is_all_read() const {
    return std::all_of(runs_.begin(), runs_.end(),
                       [](const auto& run) { return run.reader.bytes_left() < 4096; });
  }

  size_t size() const { return runs_.size(); }

  bool is_any_running() const {
    return std::any_of(runs_.begin(), runs_.end(),
                       [](const auto& run) {
                         return runs::status_of(run.reader.data(), runs::clock_now()) ==
                                runs::RunStatus::running;
                       }) ||
           std::any_of(studies_.begin(), studies_.end(), is_running);
  }

  /// The studies of searches in the folders.
  const std::vector<runs::FoundStudy>& studies() const { return studies_; }

  PanelView view(size_t index) {
    auto& run = runs_[index];
    PanelView found{.name = run.name, .run = &run.reader, .now = runs::clock_now()};
    try {
      for (const auto& each : list_checkpoints(run.reader.folder()))
        found.checkpoints.push_back(each.step);
    } catch (const Error&) {  // they cannot be listed for the moment
    }
    return found;
  }

  const runs::RunReader& reader(size_t index) const { return runs_[index].reader; }

 private:
  struct Watched {
    std::string name;
    runs::RunReader reader;
  };

  /// "a/b" for "./a/b/", so that a run has one name.
  static fs::path plain_path(const fs::path& path) {
    const auto plain = path.lexically_normal();
    return plain.has_filename() || !plain.has_parent_path() ? plain : plain.parent_path();
  }

  /// Finds runs that have come since; those that are there stay, with what was read.
  void look() {
    next_look_ = Clock::now() + 3s;
    std::set<std::string> runs_there;
    for (const auto& place : places_) {
      std::error_code unknown;
      std::vector<fs::path> found;
      if (fs::is_directory(place, unknown)) {
        found = runs::find_runs(place);
        study_folders_.try_emplace(place, place);
      }
      for (const auto& path : found) runs_there.insert(plain_path(path).string());
      if (found.empty()) found = {place};
      for (const auto& path : found) add(path);
    }
    bool changed = false;
    for (auto& [place, folder] : study_folders_) changed |= folder.look();
    if (changed) studies_.clear();
    for (const auto& [place, folder] : study_folders_)
      for (auto& study : changed ? folder.studies() : std::vector<runs::FoundStudy>())
        studies_.push_back(std::move(study));
    // A folder that was waited for turned out to hold runs.
    std::vector<std::string> names;
    for (const auto& run : runs_) names.push_back(run.name);
    std::erase_if(runs_, [&](const auto& run) {
      return run.reader.file().empty() && !runs_there.contains(run.name) &&
             std::any_of(names.begin(), names.end(),
                         [&](const auto& name) { return lies_in(name, run.name); });
    });
  }

  static bool lies_in(const std::string& name, const std::string& folder) {
    if (folder == ".") return name != "." && !name.starts_with("/") && !name.starts_with("..");
    return name.starts_with(folder + "/");
  }

  void add(const fs::path& path) {
    const auto name = plain_path(path).string();
    for (const auto& run : runs_)
      if (run.name == name) return;
    runs_.push_back({name, runs::RunReader(path)});
  }

  std::vector<fs::path> places_;
  std::vector<Watched> runs_;
  std::map<fs::path, runs::StudyFolder> study_folders_;
  std::vector<runs::FoundStudy> studies_;
  Clock::time_point next_look_{};
};

/// What keys have chosen.
struct WatchState {
  PlotOptions plots;
  std::vector<std::string> metrics;
  size_t first_run = 0, first_plot = 0;
  bool shows_trials = true;  // of a search, in place of its runs
  size_t trials_back = 0;    // trials at the end that are passed over
};

/// The GPUs of this machine.
std::vector<device::GpuUse> gpus_here() {
  std::vector<device::GpuUse> found;
  while (const auto gpu = device::gpu_use(int(found.size()))) found.push_back(*gpu);
  return found;
}

/// All runs that fit, side by side.
void draw_runs(TextGrid& page, WatchedRuns& runs, WatchState& state, size_t height) {
  const auto gpus = gpus_here();
  const size_t fitting = std::clamp<size_t>((page.width() + 2) / (kLeastPanel + 2), 1, runs.size());
  state.first_run = std::min(state.first_run, runs.size() - fitting);
  for (size_t i = 0; i < fitting; ++i) {
    const size_t left = page.width() * i / fitting, right = page.width() * (i + 1) / fitting;
    auto view = runs.view(state.first_run + i);
    view.gpus = &gpus;
    view.plots = state.plots;
    view.metrics = state.metrics;
    view.first_plot = state.first_plot;
    draw_panel(page, {left, 0, right - left - (i + 1 < fitting ? 2 : 0), height}, view);
  }
}

/// All studies, one below the other.
void draw_studies(TextGrid& page, const WatchedRuns& runs, const WatchState& state, size_t height) {
  const auto& all = runs.studies();
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t top = height * i / all.size(), bottom = height * (i + 1) / all.size();
    draw_study(page, {0, top, page.width(), bottom - top}, all[i], state.plots, state.trials_back);
  }
}

void draw_keys(TextGrid& page, const WatchedRuns& runs, const WatchState& state) {
  if (!runs.studies().empty() && state.shows_trials) {
    page.put(0, page.height() - 1, "q quit   t runs   l logarithmic or linear axis   ↑↓ trials",
             Style::dim);
    return;
  }
  auto text = fmt::format("q quit   l {} axis   s smoothing {}   ↑↓ curves",
                          state.plots.is_log ? "linear" : "logarithmic",
                          state.plots.smoothing > 0 ? "off" : "on");
  if (!runs.studies().empty()) text += "   t trials";
  if (runs.size() > 1) text += fmt::format("   ←→ runs ({})", runs.size());
  page.put(0, page.height() - 1, text, Style::dim);
}

void take_key(const std::string& key, WatchState& state, size_t runs, size_t trials) {
  if (key == "t") state.shows_trials = !state.shows_trials;
  if (trials > 0 && state.shows_trials && (key == "up" || key == "down")) {
    if (key == "up") state.trials_back = std::min(state.trials_back + 1, trials);
    if (key == "down" && state.trials_back > 0) --state.trials_back;
    return;
  }
  if (key == "l") state.plots.is_log = !state.plots.is_log;
  if (key == "s") state.plots.smoothing = state.plots.smoothing > 0 ? 0 : 0.9;
  if (key == "down") ++state.first_plot;
  if (key == "up" && state.first_plot > 0) --state.first_plot;
  if (key == "right" && state.first_run + 1 < runs) ++state.first_run;
  if (key == "left" && state.first_run > 0) --state.first_run;
}

std::chrono::milliseconds pause_of(double seconds) {
  constexpr double kLongest = 86400;
  return std::chrono::milliseconds(int64_t(std::min(seconds, kLongest) * 1000));
}

/// Whether the output can be drawn upon: a terminal that moves its cursor.
bool can_draw() {
  if (::isatty(STDOUT_FILENO) != 1 || ::isatty(STDIN_FILENO) != 1) return false;
  const char* kind = std::getenv("TERM");
  return kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

void watch_live(WatchedRuns& runs, WatchState& state, double interval) {
  TerminalScreen screen;
  for (auto next_read = Clock::now();;) {
    if (Clock::now() >= next_read) {
      runs.read();
      next_read =
          Clock::now() + (runs.is_all_read() ? pause_of(interval) : std::chrono::milliseconds(0));
    }
    const auto [width, height] = screen.size();
    TextGrid page(width, height);
    const size_t room = height > 1 ? height - 1 : height;
    if (!runs.studies().empty() && state.shows_trials)
      draw_studies(page, runs, state, room);
    else
      draw_runs(page, runs, state, room);
    if (height > 1) draw_keys(page, runs, state);
    screen.show(page);
    const auto patience =
        std::chrono::duration_cast<std::chrono::milliseconds>(next_read - Clock::now());
    if (const auto key = screen.key(std::max(patience, 0ms))) {
      if (*key == "q") return;
      size_t trials = 0;
      for (const auto& each : runs.studies()) trials = std::max(trials, each.study.trials.size());
      take_key(*key, state, runs.size(), trials);
    }
  }
}

/// Studies as text: a line a trial.
void print_studies(const WatchedRuns& runs) {
  for (const auto& found : runs.studies()) {
    const auto head = fmt::format("{} ({})", found.study.name, found.file.string());
    for (const auto& line : {head, study_line(found), best_line(found)})
      print_line(printable(line));
    for (const auto& line : trial_lines(found)) print_line(printable(line));
    print_line("");
  }
}

/// The page as text. Its width is COLUMNS of the environment, or 80.
void print_page(WatchedRuns& runs, WatchState& state) {
  while (runs.read() && !runs.is_all_read()) {
  }
  print_studies(runs);
  const char* columns = std::getenv("COLUMNS");
  const int width = columns != nullptr ? std::atoi(columns) : 0;
  for (state.first_run = 0; state.first_run < runs.size();) {
    TextGrid page(width >= 20 ? size_t(std::min(width, 1000)) : 80, 30);
    const size_t fitting =
        std::clamp<size_t>((page.width() + 2) / (kLeastPanel + 2), 1, runs.size());
    draw_runs(page, runs, state, page.height());
    for (size_t y = 0; y < page.height(); ++y) print_line(page.plain_line(y));
    state.first_run += fitting;
    if (state.first_run < runs.size()) print_line("");
  }
}

/// Trials that have ended, as lines.
std::set<std::string> ended_trials(const WatchedRuns& runs) {
  std::set<std::string> lines;
  for (const auto& found : runs.studies()) {
    const auto all = trial_lines(found);
    for (size_t i = 0; i < all.size(); ++i)
      if (found.study.trials[i].is_finished()) lines.insert(all[i]);
  }
  return lines;
}

/// Without a terminal: the page once, then every new line of the log until the runs have ended.
void follow_as_text(WatchedRuns& runs, WatchState& state, double interval) {
  print_page(runs, state);
  const auto newest = [&](size_t i) {
    const auto& messages = runs.reader(i).data().messages;
    return messages.empty() ? runs::RunMessage() : messages.back();
  };
  auto ended = ended_trials(runs);
  std::vector<std::string> last(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) last[i] = message_line(newest(i));
  while (runs.is_any_running()) {
    std::this_thread::sleep_for(pause_of(interval));
    const bool is_new = runs.read();
    const auto now_ended = ended_trials(runs);
    for (const auto& line : now_ended)
      if (!ended.contains(line)) print_line(printable("trial" + line));
    ended = now_ended;
    if (!is_new) continue;
    last.resize(runs.size());
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto& messages = runs.reader(i).data().messages;
      // What has come after the line that was printed last.
      size_t begin = messages.size();
      while (begin > 0 && message_line(messages[begin - 1]) != last[i]) --begin;
      for (size_t at = begin; at < messages.size(); ++at)
        print_line((runs.size() > 1 ? runs.view(i).name + ": " : "") + message_line(messages[at]));
      last[i] = message_line(newest(i));
    }
  }
}

}  // namespace

int watch(Words words) {
  std::vector<std::string> rest(words.begin(), words.end());
  std::vector<fs::path> places;
  while (!rest.empty() && !rest.front().starts_with("-")) {
    places.emplace_back(rest.front());
    rest.erase(rest.begin());
  }
  WatchFlags flags;
  OptionSet set;
  set.add(flags, std::span<const OptionRow<WatchFlags>>(kWatchRows));
  if (set.parse(rest).help) {
    print_line(fmt::format(
        "{}\n\nA run that is under way or has ended, in the terminal: curves, progress and time "
        "left, GPU use, checkpoints and the last lines; of a search its trials and the best so "
        "far. DIR is a run folder, or one that holds runs; FILE is a log.jsonl, log.csv or "
        "trainer_state.json. The run is not "
        "touched.\n\n{}",
        kWatchUsage, set.help()));
    return 0;
  }
  if (places.empty())
    throw Error("G-CLI-4", ErrorKind::usage,
                "gradus watch takes run folders or files, received none", kWatchUsage);
  set.check();
  for (const auto& place : places)
    if (!fs::exists(place))
      throw Error("G-CLI-5", ErrorKind::usage, place.string() + ": there is no such folder or file",
                  "Name the --output_dir of a run.");
  WatchedRuns runs(places);
  WatchState state{.plots = {flags.log_axis, flags.smoothing},
                   .metrics = flags.metrics.value_or(std::vector<std::string>())};
  if (flags.once)
    print_page(runs, state);
  else if (can_draw())
    watch_live(runs, state, flags.interval);
  else
    follow_as_text(runs, state, flags.interval);
  return 0;
}

std::vector<Flag> watch_flags() { return flags_of(kWatchRows); }

}  // namespace gradus::cli
