// sweep: trials of a search, each a process of its own, several at once.
#include <fcntl.h>
#include <fmt/format.h>
#include <gradus/config/option_set.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/core/nearest.h>
#include <gradus/core/printable.h>
#include <gradus/search/space.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "cli.h"
#include "reference.h"
#include "sweep_callback.h"

namespace gradus::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace std::chrono_literals;

struct SweepOptions {
  nlohmann::json parameters = nullptr;
  nlohmann::json arguments = nullptr;
  std::optional<std::string> output_dir = std::nullopt;
  int64_t n_trials = 20;
  int64_t n_jobs = 1;
  std::string metric = "eval_loss";
  std::string direction = "minimize";
  std::string sampler = "tpe";
  std::string pruner = "none";
  std::optional<int64_t> seed = std::nullopt;
  std::optional<std::string> storage = std::nullopt;
  std::string study_name = "sweep";
  bool json = false;
};
constexpr std::string_view kSweepDirections[] = {"minimize", "maximize"};
constexpr std::string_view kSweepSamplers[] = {"tpe", "random", "grid"};
constexpr std::string_view kSweepPruners[] = {"none", "median", "halving"};
constexpr OptionRow<SweepOptions> kSweepRows[] = {
    {&SweepOptions::parameters, "parameters", Group::program, holds(Shape::dictionary),
     "What to search: a dictionary with one entry a flag of `gradus train`.", Origin::gradus},
    {&SweepOptions::arguments, "arguments", Group::program, holds(Shape::dictionary),
     "The flags that all trials have, as a dictionary.", Origin::gradus},
    {&SweepOptions::output_dir, "output_dir", Group::program, any_value(),
     "The folder of the sweep: trial N trains in run-N.", Origin::gradus},
    {&SweepOptions::n_trials, "n_trials", Group::program, at_least(1),
     "How many trials there are in the end, those of earlier calls included.", Origin::gradus},
    {&SweepOptions::n_jobs, "n_jobs", Group::program, at_least(1),
     "How many trials train at the same time.", Origin::gradus},
    {&SweepOptions::metric, "metric", Group::program, any_value(),
     "What a trial is judged by, as an evaluation calls it.", Origin::gradus},
    {&SweepOptions::direction, "direction", Group::program, one_of(kSweepDirections),
     "Whether small or large values of it are good.", Origin::gradus},
    {&SweepOptions::sampler, "sampler", Group::program, one_of(kSweepSamplers),
     "How parameters are chosen: tpe learns from the trials before, random does not, grid tries "
     "everything.",
     Origin::gradus},
    {&SweepOptions::pruner, "pruner", Group::program, one_of(kSweepPruners),
     "Which trials are stopped at an evaluation: those worse than the median, or all but the best "
     "quarter of each rung (halving).",
     Origin::gradus},
    {&SweepOptions::seed, "seed", Group::program, at_least(0),
     "Seed of the sampler; by default one is drawn and kept in the study.", Origin::gradus},
    {&SweepOptions::storage, "storage", Group::program, any_value(),
     "The SQLite file of the study, which Optuna opens; by default study.db in output_dir.",
     Origin::gradus},
    {&SweepOptions::study_name, "study_name", Group::program, any_value(),
     "The name of the study in the file.", Origin::gradus},
    {&SweepOptions::json, "json", Group::program, any_value(),
     "Print one JSON document with all trials to stdout.", Origin::gradus},
};

constexpr const char* kSweepUsage =
    "usage: gradus sweep SPACE.yaml --output_dir DIR [--n_trials N] [--flags] [-- TRAIN FLAGS]\n\n"
    "Trains with parameters from a space and says which were best. Started again, a sweep goes on "
    "where it was.\n\n";

volatile sig_atomic_t g_sweep_signal = 0;   // the last one
volatile sig_atomic_t g_sweep_signals = 0;  // how many there were
void note_sweep_signal(int signal) {
  g_sweep_signal = signal;
  g_sweep_signals = g_sweep_signals + 1;
}
// Those that were ignored when the program started, by nohup say, stay so, in the trials as well.
bool is_signal_ignored(int signal) {
  struct sigaction now{};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

std::string this_program() {
  char path[4096] = {};
  return ::readlink("/proc/self/exe", path, sizeof path - 1) > 0 ? path : "gradus";
}

// The last lines of a trial's log: why it failed.
std::string end_of_log(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
    if (lines.size() > 5) lines.erase(lines.begin());
  }
  std::string text;
  for (const auto& line : lines) text += "\n  " + line;
  return text;
}

/// The trials of one sweep.
class Sweep {
 public:
  Sweep(const SweepOptions& options, std::vector<std::string> train_words)
      : options_(options),
        train_words_(std::move(train_words)),
        space_(search::parse_space(options.parameters)),
        study_({.storage = storage(),
                .study_name = options.study_name,
                .direction = options.direction,
                .sampler = make_sweep_sampler(),
                .pruner = search::make_pruner(options.pruner)}) {
    study_.set_user_attr("gradus:sweep", {{"metric", options_.metric},
                                          {"output_dir", fs::absolute(*options_.output_dir)},
                                          {"parameters", options_.parameters}});
  }
  ~Sweep() {
    for (const auto& job : jobs_) {
      ::kill(job.process, SIGKILL);
      ::waitpid(job.process, nullptr, 0);
    }
  }

  /// Trains until there are `n_trials`; returns the exit code.
  int run() {
    while (true) {
      while (g_sweep_signal == 0 && int64_t(jobs_.size()) < options_.n_jobs) {
        auto trial = study_.ask_up_to(options_.n_trials, space_);
        if (!trial) break;
        start(*trial);
      }
      if (jobs_.empty()) break;
      collect();
      if (const int received = g_sweep_signals; received != passed_on_) {
        passed_on_ = received;  // the trials save and end; a second one ends them at once
        for (const auto& job : jobs_) ::kill(job.process, SIGTERM);
      }
      std::this_thread::sleep_for(20ms);
    }
    if (g_sweep_signal == 0) return report();
    log_print("gradus: the sweep was stopped. Start it again with the same command to go on.\n");
    return 128 + g_sweep_signal;
  }

 private:
  struct Job {
    pid_t process;
    search::Trial trial;
  };

  fs::path storage() const {
    return options_.storage ? fs::path(*options_.storage)
                            : fs::path(*options_.output_dir) / "study.db";
  }
  std::shared_ptr<search::Sampler> make_sweep_sampler() const {
    std::optional<uint64_t> seed;
    if (options_.seed) seed = uint64_t(*options_.seed);
    return search::make_sampler(
        options_.sampler, seed,
        options_.sampler == "grid" ? search::grid_of(space_) : search::GridSampler::Grid());
  }
  fs::path folder_of(const search::Trial& trial) const {
    return fs::path(*options_.output_dir) / fmt::format("run-{}", trial.number());
  }

  // The flags of a trial, as a config file.
  json flags_of_trial(const search::Trial& trial) const {
    json flags = options_.arguments.is_object() ? options_.arguments : json::object();
    const auto params = trial.params();
    for (const auto& [name, value] : params.items()) flags[name] = value;
    flags["output_dir"] = folder_of(trial).string();
    flags["resume_from_checkpoint"] = "last";  // of a trial that was cut short; else from nothing
    if (!flags.contains("run_name")) flags["run_name"] = fmt::format("run-{}", trial.number());
    if (!flags.contains("disable_tqdm")) flags["disable_tqdm"] = true;
    if (!flags.contains("do_eval")) flags["do_eval"] = true;
    return flags;
  }

  void start(const search::Trial& trial) {
    const auto folder = folder_of(trial);
    make_directory(folder);
    write_file_atomically(folder / "trial.json", dump_json(flags_of_trial(trial), 2) + "\n");
    const SweepTrial told{.storage = storage().string(),
                          .study_name = options_.study_name,
                          .direction = options_.direction,
                          .pruner = options_.pruner,
                          .metric = options_.metric,
                          .id = trial.id()};
    std::vector<std::string> command = {this_program(), "train", (folder / "trial.json").string()};
    command.insert(command.end(), train_words_.begin(), train_words_.end());
    std::vector<char*> words;
    for (auto& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    const auto variable = told.to_text();
    const auto log = (folder / "log.txt").string();
    const auto threads =
        std::max<int64_t>(int64_t(std::thread::hardware_concurrency()) / options_.n_jobs, 1);
    const pid_t parent = ::getpid();
    const pid_t process = ::fork();
    if (process == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a sweep that is killed goes on from checkpoints
      if (::getppid() != parent) ::_exit(137);
      const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
      if (file >= 0) ::dup2(file, STDOUT_FILENO);
      if (file >= 0) ::dup2(file, STDERR_FILENO);
      ::setenv("GRADUS_TRIAL", variable.c_str(), 1);
      ::setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 0);
      ::signal(SIGPIPE, SIG_DFL);
      for (const int signal : {SIGINT, SIGTERM, SIGHUP})
        if (!is_signal_ignored(signal)) ::signal(signal, SIG_DFL);
      ::setpgid(0, 0);  // Ctrl-C of the terminal goes to the sweep, which passes it on
      ::execv(words[0], words.data());
      ::_exit(127);
    }
    if (process < 0)
      throw Error("G-CLI-9", ErrorKind::io,
                  fmt::format("trial {} cannot be started: {}", trial.number(), ::strerror(errno)),
                  "Use fewer --n_jobs.");
    jobs_.push_back({process, trial});
  }

  void collect() {
    for (size_t i = 0; i < jobs_.size();) {
      int status = 0;
      if (::waitpid(jobs_[i].process, &status, WNOHANG) != jobs_[i].process) {
        ++i;
        continue;
      }
      const auto job = jobs_[i];
      jobs_.erase(jobs_.begin() + std::ptrdiff_t(i));
      if (g_sweep_signal == 0) finish(job.trial, status);
    }
  }

  // What the trial gave: the metric of the evaluation after training, else of the last one in it.
  std::optional<double> result_of(const search::Trial& trial) const {
    const auto file = folder_of(trial) / "all_results.json";
    if (fs::exists(file))
      for (const auto& key : {options_.metric, "eval_" + options_.metric})
        if (const auto all = read_json(file); all.contains(key) && all[key].is_number())
          return all[key].get<double>();
    const auto now = trial.frozen();
    if (!now.last_step()) return std::nullopt;
    return now.intermediate_values.at(*now.last_step());
  }

  /// Whether some trial of the study had the metric.
  bool has_any_result() const {
    const auto all = study_.trials();
    return std::any_of(all.begin(), all.end(), [](const auto& each) {
      return each.value || !each.intermediate_values.empty();
    });
  }

  /// A trial has trained and does not have the metric: the others would not have it, either.
  [[noreturn]] void refuse_metric(const search::Trial& trial) const {
    const auto file = folder_of(trial) / "all_results.json";
    std::vector<std::string> known;
    if (fs::exists(file)) {
      const auto all = read_json(file);
      for (const auto& [name, value] : all.items())
        if (value.is_number() && name.starts_with("eval_")) known.push_back(name);
    }
    throw Error("G-CLI-10", ErrorKind::usage,
                fmt::format("trial {} has no metric '{}': {}", trial.number(), options_.metric,
                            known.empty() ? "it was not evaluated"
                                          : "its evaluation has " + join_or(known)),
                known.empty()
                    ? "Give the trials an --eval_strategy or --do_eval, and validation data."
                    : "Name one of them with --metric.");
  }

  void finish(const search::Trial& trial, int status) {
    const auto log = folder_of(trial) / "log.txt";
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
      study_.tell(trial, search::TrialState::fail);
      throw Error("G-CLI-10", ErrorKind::usage,
                  fmt::format("trial {} was refused: {}", trial.number(), end_of_log(log)),
                  "Correct the space or the arguments; other trials would be refused as well.");
    }
    if (trial.frozen().state == search::TrialState::running) {
      const bool is_done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      const auto value = is_done ? result_of(trial) : std::nullopt;
      if (value)
        study_.tell(trial, *value);
      else
        study_.tell(trial, search::TrialState::fail);
      if (is_done && !value) {
        if (!has_any_result()) refuse_metric(trial);
        log_warning(fmt::format("Trial {} has no metric '{}'.", trial.number(), options_.metric));
      }
    }
    const auto now = trial.frozen();
    auto said = fmt::format("trial {}: {}", now.number, search::state_name(now.state));
    if (now.value) said += fmt::format(", {} {:.6g}", options_.metric, *now.value);
    said += ", " + dump_json(now.params());
    if (now.state == search::TrialState::fail) said += "; see " + log.string() + end_of_log(log);
    log_print(printable(said) + "\n");
  }

  int report() {
    const auto best = study_.best_trial();
    if (options_.json) {
      json all = json::array();
      for (const auto& trial : study_.trials())
        all.push_back({{"number", trial.number},
                       {"state", search::state_name(trial.state)},
                       {"value", trial.value ? json(*trial.value) : json()},
                       {"params", trial.params()}});
      print_line(dump_json(json{{"best",
                                 {{"number", best.number},
                                  {"value", *best.value},
                                  {"params", best.params()},
                                  {"folder", folder_of(study_.trial(best.id)).string()}}},
                                {"trials", all},
                                {"storage", storage().string()},
                                {"study_name", options_.study_name}},
                           2));
      return 0;
    }
    print_line(fmt::format("best: trial {}, {} {:.6g}, {}\n{}", best.number, options_.metric,
                           *best.value, folder_of(study_.trial(best.id)).string(),
                           dump_json(best.params(), 2)));
    return 0;
  }

  const SweepOptions& options_;
  std::vector<std::string> train_words_;
  std::map<std::string, search::Distribution> space_;
  search::Study study_;
  std::vector<Job> jobs_;
  int passed_on_ = 0;  // signals
};

void check_sweep(const SweepOptions& options, Words train_words) {
  if (!options.parameters.is_object())
    throw Error("G-CLI-4", ErrorKind::usage, "gradus sweep needs parameters to search",
                kSweepUsage);
  if (!options.output_dir)
    throw Error("G-CLI-4", ErrorKind::usage, "gradus sweep needs --output_dir", kSweepUsage);
  const auto is_argument = [&](const std::string& name) {
    return (options.arguments.is_object() && options.arguments.contains(name)) ||
           std::any_of(train_words.begin(), train_words.end(), [&](const auto& word) {
             auto flag = word.substr(0, word.find('='));
             std::replace(flag.begin(), flag.end(), '-', '_');  // as flags are read
             return flag == "__" + name;
           });
  };
  for (const char* own : {"output_dir", "resume_from_checkpoint", "overwrite_output_dir"})
    if (options.parameters.contains(own) || is_argument(own))
      throw Error("G-CLI-4", ErrorKind::usage,
                  fmt::format("'{}' is no flag for trials: the sweep gives each its folder, and "
                              "lets it go on from its last checkpoint",
                              own),
                  "Leave it out; --output_dir of the sweep names the folder of all trials.");
  for (const auto& [name, given] : options.parameters.items())
    if (is_argument(name))
      throw Error("G-CLI-4", ErrorKind::usage,
                  fmt::format("'{}' is a parameter of the sweep and has a fixed value, too", name),
                  "Leave one of the two out.");
}

}  // namespace

std::vector<Flag> sweep_flags() { return flags_of(kSweepRows); }

int sweep(Words words) {
  SweepOptions options;
  OptionSet set;
  set.add(options, std::span<const OptionRow<SweepOptions>>(kSweepRows));
  const auto separator = std::find(words.begin(), words.end(), "--");
  const std::vector<std::string> own(words.begin(), separator);
  std::vector<std::string> train_words;
  if (separator != words.end()) train_words.assign(separator + 1, words.end());
  if (own.empty() || set.parse(own).help) {
    print_line(kSweepUsage + set.help());
    return own.empty() ? 2 : 0;
  }
  set.check();
  check_sweep(options, train_words);
  make_directory(*options.output_dir);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (!is_signal_ignored(signal)) ::signal(signal, note_sweep_signal);
  return Sweep(options, std::move(train_words)).run();
}

}  // namespace gradus::cli
