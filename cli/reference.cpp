#include "reference.h"

#include <gradus/core/json.h>
#include <gradus/tasks/task.h>

#include <algorithm>

#include "cli.h"

namespace gradus::cli {
namespace {

std::string default_text(const nlohmann::ordered_json& value) {
  if (value.is_null() || value == false || (value.is_array() && value.empty())) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

std::vector<Flag> flags_of(const OptionSet& set) {
  std::vector<Flag> flags;
  for (const auto& option : set.describe()) {
    Flag flag{.name = option["name"], .type = option["type"]};
    flag.group = option["group"];
    flag.help = option["help"];
    flag.default_value = default_text(option["default"]);
    if (option["choices"].is_array()) flag.choices = option["choices"];
    flags.push_back(std::move(flag));
  }
  return flags;
}

std::vector<Flag> json_flag() {
  return {{.name = "json", .type = "bool", .help = "Print one JSON document to stdout."}};
}

std::vector<Flag> options_flags() {
  auto flags = json_flag();
  flags.push_back({.name = "markdown", .type = "bool", .help = "Print docs/user/options.md."});
  flags.push_back(
      {.name = "task", .type = "str", .help = "Every flag of this task.", .choices = task_names()});
  return flags;
}

std::vector<Flag> no_flags() { return {}; }

std::vector<CommandReference> command_references() {
  std::vector<CommandReference> references;
  for (const auto& command : commands())
    references.push_back({.name = command.name,
                          .summary = command.summary,
                          .arguments = command.arguments,
                          .words = command.words,
                          .flags = command.flags ? command.flags() : json_flag(),
                          .has_tasks = command.has_tasks,
                          .task = command.task});
  return references;
}

std::vector<TaskReference> task_references() {
  const auto common = training_flags();
  const auto is_common = [&](const Flag& flag) {
    return std::any_of(common.begin(), common.end(),
                       [&](const auto& other) { return other.name == flag.name; });
  };
  std::vector<TaskReference> references;
  for (const auto& name : task_names()) {
    const auto task = make_task(name);
    OptionSet set;
    task->add_options(set);
    task->arguments().add_to(set);
    auto flags = flags_of(set);
    std::erase_if(flags, is_common);
    references.push_back({name, std::move(flags)});
  }
  return references;
}

}  // namespace gradus::cli
