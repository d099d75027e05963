#pragma once

#include <gradus/config/option_set.h>

#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace gradus::cli {

/// One flag, as its row in an option table says it. Completion and the man page are made of these.
struct Flag {
  std::string name;                       ///< without the dashes
  std::string type;                       ///< "int", "str | None" …
  std::string group = {};                 ///< the heading of `--help`
  std::string help = {};                  ///< one or more sentences
  std::string default_value = {};         ///< as text; empty when it is not set
  std::vector<std::string> choices = {};  ///< empty: any value

  /// Stands alone on the command line: `--flag`, `--no_flag`.
  bool is_switch() const { return type == "bool" || type == "bool | None"; }
  /// Its value may be a path: text that is not one of a few words.
  bool takes_text() const { return choices.empty() && type.find("str") != std::string::npos; }
};

/// The flags of a set, in its order.
std::vector<Flag> flags_of(const OptionSet& set);
/// The flags of tables, with the defaults of their structs.
template <class... Options, size_t... sizes>
std::vector<Flag> flags_of(const OptionRow<Options> (&... rows)[sizes]) {
  std::tuple<Options...> defaults;
  OptionSet set;
  (set.add(std::get<Options>(defaults), std::span<const OptionRow<Options>>(rows)), ...);
  return flags_of(set);
}
/// `--json`, of commands that have no table.
std::vector<Flag> json_flag();

/// Everything that can stand behind `gradus NAME`.
struct CommandReference {
  std::string name;
  std::string summary;
  std::string arguments;           ///< what comes before the flags: "FILE…"; may be empty
  std::vector<std::string> words;  ///< what the first argument may be, if not a path
  std::vector<Flag> flags;         ///< those of tasks are apart
  bool has_tasks;                  ///< takes the flags of `--task`, too
  std::string task;                ///< what it is short for, if it is
};

/// All commands, in the order of `gradus --help`.
std::vector<CommandReference> command_references();

/// A task and the flags that not every task has.
struct TaskReference {
  std::string name;
  std::vector<Flag> flags;
};

/// All tasks.
std::vector<TaskReference> task_references();

}  // namespace gradus::cli
