// train, eval and predict: a task with its options.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/core/nearest.h>
#include <gradus/tasks/task.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>

#include "cli.h"
#include "core/parsed_json.h"
#include "data_cache.h"
#include "plan.h"
#include "program_options.h"
#include "reference.h"
#include "sweep_callback.h"

namespace gradus::cli {
namespace {

// What is wrong with the file as such; its keys are looked at when the task is known.
void check_config_file(const std::string& file) {
  try {
    OptionSet().read_file(file);
  } catch (const Error& error) {
    if (error.id() == "G-CONF-6") throw;
  }
}

// The value of a top-level `task` key.
std::string task_in_file(const std::string& file) {
  check_config_file(file);
  std::ifstream in(file);
  if (file.ends_with(".json")) {
    const auto document = json_or_discarded(
        std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()));
    return document.is_object() && document.contains("task") && document["task"].is_string()
               ? document["task"].get<std::string>()
               : "";
  }
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
    const auto colon = line.find(':');
    const auto key = line.substr(0, std::min(colon, line.find_last_not_of(" \t", colon - 1) + 1));
    if (colon == std::string::npos || (key != "task" && key != "\"task\"" && key != "'task'"))
      continue;
    const auto begin = line.find_first_not_of(" \t\"'", colon + 1);
    return begin == std::string::npos
               ? ""
               : line.substr(begin, line.find_first_of(" \t\"'#\r", begin) - begin);
  }
  return "";
}

// The task decides which flags there are, so its name is looked for first: in the flags, else in
// the config file.
std::string task_of(Words words) {
  std::string task;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--task" && i + 1 < words.size()) task = words[i + 1];
    if (words[i].starts_with("--task=")) task = words[i].substr(7);
  }
  if (!task.empty()) return task;
  const auto is_file = [](std::string_view word) {
    return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
  };
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with("--config=")) return task_in_file(words[i].substr(9));
    const bool follows_flag = i > 0 && words[i - 1].starts_with("-") &&
                              words[i - 1].find('=') == std::string::npos &&
                              words[i - 1] != "--config";
    if (is_file(words[i]) && !words[i].starts_with("-") && !follows_flag)
      return task_in_file(words[i]);
  }
  // After a flag without a value (`--do_eval config.yaml`); data files stand there too, and those
  // of a data set are large.
  for (const auto& word : words) {
    std::error_code unknown;
    if (!is_file(word) || word.starts_with("-") ||
        std::filesystem::file_size(word, unknown) > 1'000'000 || unknown)
      continue;
    try {
      if (const auto task = task_in_file(word); !task.empty()) return task;
    } catch (const Error&) {
    }
  }
  return "";
}

nlohmann::json to_json(const TaskResult& result, const TrainingArguments& args,
                       const std::string& task) {
  nlohmann::json document = {{"task", task},
                             {"output_dir", *args.output_dir},
                             {"global_step", result.global_step},
                             {"metrics", result.metrics}};
  if (result.interrupted_by != 0) document["interrupted_by"] = result.interrupted_by;
  return document;
}

constexpr const char* kStageNames[] = {"train", "eval", "predict", "plan"};
enum class Stage { train, eval, predict, plan };

int run(Words words, Stage stage) {
  const bool wants_help = std::find(words.begin(), words.end(), "--help") != words.end() ||
                          std::find(words.begin(), words.end(), "-h") != words.end();
  ProgramOptions program;
  OptionSet set;
  program.add_to(set);
  PlanFlags plan_flags;
  if (stage == Stage::plan) plan_flags.add_to(set);
  const auto name = task_of(words);
  std::unique_ptr<Task> task;
  if (!name.empty() || !wants_help) task = make_task(name);
  ArgumentsOf<TrainingArguments> plain;  // only for --help without a task
  auto& arguments = task ? task->arguments() : plain;
  if (task) task->add_options(set);
  arguments.add_to(set);
  if (wants_help) {
    print_line(fmt::format(
        "usage: gradus {} --task {} [config.yaml|config.json] [--flags]\n\n{}",
        kStageNames[size_t(stage)],
        task ? task->name() : "{" + fmt::format("{}", fmt::join(task_names(), ",")) + "}",
        set.help()));
    return 0;
  }
  set.parse(words);
  auto args = arguments.common();
  const bool trains = stage == Stage::train || stage == Stage::plan;
  if (trains && !set.was_set("do_train")) args.do_train = true;
  if (stage == Stage::eval) args.do_eval = true;
  if (stage == Stage::predict) args.do_predict = true;
  if (!trains) args.do_train = false;
  if (!args.do_train && !args.do_eval && !args.do_predict && args.eval_strategy == "no")
    throw Error("G-CLI-8", ErrorKind::usage,
                "there is nothing to do: --do_train is false, and neither --do_eval nor "
                "--do_predict is set",
                "Leave --do_train out, or set one of the others.");
  if (!set.was_set("log_level")) args.log_level = "warning";
  // After a restart by `gradus launch` or torchrun a run goes on where it was.
  const char* restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (args.do_train && restarts != nullptr && std::string(restarts) != "0")
    args.resume_from_checkpoint = "last";
  arguments.set_common(args);
  arguments.resolve();
  args = arguments.common();
  program.check(args);
  if (stage == Stage::plan || program.dry_run)
    return plan_run(
        *task, args,
        {.json = program.json, .is_dry_run = stage != Stage::plan, .flags = plan_flags});
  auto callbacks = program.callbacks();
  if (program.cache_limit) callbacks.push_back(cache_limiter(*program.cache_limit));
  if (const auto trial = SweepTrial::of_environment())
    callbacks.push_back(std::make_shared<SweepCallback>(*trial));
  const auto result = run_task(*task, args, /*handle_signals=*/true, callbacks);
  if (program.json && args.process_index() == 0)
    print_line(dump_json(to_json(result, args, name), 2));
  if (result.interrupted_by == 0) return 0;
  const char* signal = result.interrupted_by == SIGINT   ? "Ctrl-C"
                       : result.interrupted_by == SIGHUP ? "SIGHUP"
                                                         : "SIGTERM";
  if (args.should_log())
    log_print(
        fmt::format("gradus: stopped by {}. Continue with the same command and "
                    "--resume_from_checkpoint last\n",
                    signal));
  return 128 + result.interrupted_by;
}

}  // namespace

std::vector<Flag> training_flags() {
  ProgramOptions program;
  ArgumentsOf<TrainingArguments> arguments;
  OptionSet set;
  program.add_to(set);
  arguments.add_to(set);
  auto flags = flags_of(set);
  for (auto& flag : flags)
    if (flag.name == "task") flag.choices = task_names();
  flags.insert(flags.begin() + 1, {.name = "config",
                                   .type = "str | None",
                                   .group = flags.front().group,
                                   .help = "A YAML or JSON file with flags; those of the command "
                                           "line win over it."});
  return flags;
}

std::vector<Flag> flags_of_task(const std::string& task) {
  auto flags = training_flags();
  std::erase_if(flags, [](const auto& flag) { return flag.name == "task"; });
  for (const auto& each : task_references())
    if (each.name == task) flags.insert(flags.end(), each.flags.begin(), each.flags.end());
  return flags;
}

int train_task(const std::string& task, Words words) {
  for (const auto& word : words)
    if (word == "--task" || word.starts_with("--task="))
      throw Error("G-CLI-4", ErrorKind::usage,
                  fmt::format("`gradus {}` has its task already, received {}", task, word),
                  "Leave --task out, or use `gradus train --task`.");
  std::vector<std::string> all = {"--task", task};
  all.insert(all.end(), words.begin(), words.end());
  return run(all, Stage::train);
}

int train(Words words) { return run(words, Stage::train); }
int eval(Words words) { return run(words, Stage::eval); }
int predict(Words words) { return run(words, Stage::predict); }
int plan(Words words) { return run(words, Stage::plan); }

}  // namespace gradus::cli
