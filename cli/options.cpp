// options: what the option tables say, for people, tools and the page docs/user/options.md.
#include <fmt/format.h>
#include <gradus/config/training_options.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/tasks/task.h>
#include <gradus/trainers/registry.h>

#include "cli.h"
#include "program_options.h"

namespace gradus::cli {
namespace {

enum class Form { text, json, markdown };

std::string shown(const OptionSet& set, Form form) {
  if (form == Form::json) return dump_json(set.describe(), 2);
  return form == Form::markdown ? set.markdown() : set.help();
}

// Every flag of `gradus train --task T`: the program's, the task's own, then those of its trainer's
// arguments.
std::string options_of_task(const std::string& name, Form form) {
  const auto task = make_task(name);
  ProgramOptions program;
  OptionSet set;
  program.add_to(set);
  task->add_options(set);
  task->arguments().add_to(set);
  return shown(set, form);
}

// What each trainer adds to the options of TrainingArguments.
std::string options_of_trainers() {
  std::string page;
  for (const auto& name : trainer_names()) {
    const auto arguments = find_trainer(name).make_arguments();
    OptionSet set;
    arguments->add_own_to(set);
    const auto tables = set.markdown();
    if (tables.empty()) continue;
    page += fmt::format("\n# Options of {}\n{}", name, tables);
  }
  return page;
}

// Takes `--task T` or `--task=T` out of the words.
std::optional<std::string> take_task(std::vector<std::string>& words) {
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (word->starts_with("--task=")) {
      const auto task = word->substr(7);
      words.erase(word);
      return task;
    }
    if (*word != "--task") continue;
    const auto value = std::next(word);
    const auto task = value == words.end() ? std::string() : *value;
    words.erase(word, value == words.end() ? value : std::next(value));
    return task;
  }
  return std::nullopt;
}

}  // namespace

int options(Words words) {
  std::vector<std::string> rest(words.begin(), words.end());
  const bool json = take_json_flag(rest);
  const bool markdown = std::erase(rest, "--markdown") > 0;
  const auto task = take_task(rest);
  if (!rest.empty() && (rest[0] == "--help" || rest[0] == "-h")) {
    print_line(
        "usage: gradus options [--task T] [--json | --markdown]\n\nEvery training option with its "
        "default and meaning; with --task, every flag of `gradus train --task T`.");
    return 0;
  }
  if (!rest.empty())
    throw Error(
        "G-CLI-4", ErrorKind::usage,
        "gradus options does not take '" + rest[0] + "'; expected --task T, --json or --markdown",
        "Leave it out.");
  const auto form = json ? Form::json : markdown ? Form::markdown : Form::text;
  auto text = task                 ? options_of_task(*task, form)
              : form == Form::json ? options_json()
              : form == Form::text ? options_text()
                                   : options_markdown() + options_of_trainers();
  if (text.ends_with('\n')) text.pop_back();  // print_line adds its own
  print_line(text);
  return 0;
}

}  // namespace gradus::cli
