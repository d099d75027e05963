// train, eval and predict: a task with its options.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/config/training_options.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/core/nearest.h>
#include <gradus/tasks/task.h>
#include <signal.h>

#include <fstream>

#include "cli.h"

namespace gradus::cli {
namespace {

struct ProgramOptions {
  std::optional<std::string> task = std::nullopt;
  bool json = false;
};
constexpr OptionRow<ProgramOptions> kProgramRows[] = {
    {&ProgramOptions::task, "task", Group::task, any_value(), "What to train; `gradus train --task T --help` lists the task's own flags.", Origin::gradus},
    {&ProgramOptions::json, "json", Group::program, any_value(), "Print one JSON document with the results to stdout.", Origin::gradus},
};

// The value of a top-level `task` key. What is wrong with the file is reported when it is read for good.
std::string task_in_file(const std::string& file) {
  std::ifstream in(file);
  if (file.ends_with(".json")) {
    const auto document = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
    return document.is_object() && document.contains("task") && document["task"].is_string() ? document["task"].get<std::string>() : "";
  }
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("task:")) continue;
    const auto begin = line.find_first_not_of(" \t\"'", 5);
    return begin == std::string::npos ? "" : line.substr(begin, line.find_first_of(" \t\"'#\r", begin) - begin);
  }
  return "";
}

// The task decides which flags there are, so its name is looked for first: in the flags, else in the config file.
std::string task_of(Words words) {
  std::string task;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--task" && i + 1 < words.size()) task = words[i + 1];
    if (words[i].starts_with("--task=")) task = words[i].substr(7);
  }
  if (!task.empty()) return task;
  for (const auto& word : words)
    if (!word.starts_with("-") && (word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json"))) return task_in_file(word);
  return "";
}

nlohmann::json to_json(const TaskResult& result, const TrainingArguments& args, const std::string& task) {
  nlohmann::json document = {{"task", task}, {"output_dir", *args.output_dir}, {"global_step", result.global_step}, {"metrics", result.metrics}};
  if (result.interrupted_by != 0) document["interrupted_by"] = result.interrupted_by;
  return document;
}

enum class Stage { train, eval, predict };

int run(Words words, Stage stage) {
  const bool wants_help = std::find(words.begin(), words.end(), "--help") != words.end() || std::find(words.begin(), words.end(), "-h") != words.end();
  ProgramOptions program;
  TrainingArguments args;
  OptionSet set;
  set.add(program, std::span<const OptionRow<ProgramOptions>>(kProgramRows));
  const auto name = task_of(words);
  std::unique_ptr<Task> task;
  if (!name.empty() || !wants_help) task = make_task(name);
  if (task) task->add_options(set);
  set.add(args, training_options());
  if (wants_help) {
    print_line(fmt::format("usage: gradus {} --task {} [config.yaml|config.json] [--flags]\n\n{}", stage == Stage::train ? "train" : stage == Stage::eval ? "eval" : "predict",
                           task ? task->name() : "{" + fmt::format("{}", fmt::join(task_names(), ",")) + "}", set.help()));
    return 0;
  }
  set.parse(words);
  if (stage == Stage::train) args.do_train = true;
  if (stage == Stage::eval) args.do_eval = true;
  if (stage == Stage::predict) args.do_predict = true;
  if (stage != Stage::train) args.do_train = false;
  if (!set.was_set("log_level")) args.log_level = "warning";
  args = args.resolved();
  const auto result = run_task(*task, args, /*handle_signals=*/true);
  if (program.json) print_line(dump_json(to_json(result, args, name), 2));
  if (result.interrupted_by == 0) return 0;
  log_print(fmt::format("\ngradus: stopped by {} after step {}; everything is saved in {}.\n  Go on with the same command and --resume_from_checkpoint last\n",
                        result.interrupted_by == SIGINT ? "Ctrl-C" : "SIGTERM", result.global_step, *args.output_dir));
  return 128 + result.interrupted_by;
}

}  // namespace

int train(Words words) { return run(words, Stage::train); }
int eval(Words words) { return run(words, Stage::eval); }
int predict(Words words) { return run(words, Stage::predict); }

}  // namespace gradus::cli
