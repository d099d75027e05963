// completion: scripts for shells, made from the commands and the option tables.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/version.h>

#include <algorithm>

#include "cli.h"
#include "reference.h"

namespace gradus::cli {
namespace {

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// The first sentence of a help text: menus have one line.
std::string first_sentence(const std::string& help) {
  auto text = replaced(help, "`", "");
  text.resize(std::min({text.size(), text.find(". "), text.find("; ")}));
  if (text.ends_with('.')) text.pop_back();
  return text;
}

/// The flags of all tasks together, each with the tasks that have it.
struct TaskFlag {
  Flag flag;
  std::vector<std::string> tasks;
};

std::vector<TaskFlag> flags_of_tasks() {
  std::vector<TaskFlag> all;
  for (const auto& task : task_references())
    for (const auto& flag : task.flags) {
      const auto same = std::find_if(
          all.begin(), all.end(), [&](const auto& other) { return other.flag.name == flag.name; });
      if (same == all.end()) {
        all.push_back({flag, {task.name}});
        continue;
      }
      same->tasks.push_back(task.name);
      for (const auto& choice : flag.choices)
        if (std::find(same->flag.choices.begin(), same->flag.choices.end(), choice) ==
            same->flag.choices.end())
          same->flag.choices.push_back(choice);
    }
  return all;
}

std::string header(const char* shell) {
  return fmt::format("# Completion of gradus {} for {}, made by `gradus completion {}`.\n",
                     kVersion, shell, shell);
}

// ---- bash ----------------------------------------------------------------------------------

constexpr const char* kBashFunction = R"bash(
_gradus() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
  local command=${COMP_WORDS[1]} task="" words="" i
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "$(_gradus_words commands) --help --version" -- "$cur"))
    return
  fi
  # bash takes --flag=value apart at the equals sign.
  if [[ $cur == "=" ]]; then
    cur=""
  elif [[ $prev == "=" ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 2; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} == --task ]]; then
      task=${COMP_WORDS[i + 1]}
      [[ $task != "=" ]] || task=${COMP_WORDS[i + 2]}
    fi
  done
  if [[ $prev == --* ]]; then
    prev=${prev#--}
    words=$(_gradus_words "values:$command:${prev//-/_}")
  elif ((COMP_CWORD == 2)); then
    words=$(_gradus_words "first:$command")
  fi
  if [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  elif [[ $cur == -* ]]; then
    # Flags may be written with dashes, too.
    [[ $cur != --* ]] || { cur=${cur#--}; cur=--${cur//-/_}; }
    words="$(_gradus_words "flags:$command") --help"
    [[ $cur != --no* ]] || words+=" $(_gradus_words "no:$command")"
    case $command in
      train | eval | predict)
        words+=" $(_gradus_words "flags-of:$task")"
        [[ $cur != --no* ]] || words+=" $(_gradus_words "no-of:$task")"
        ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  fi
}

complete -o bashdefault -o default -F _gradus gradus
)bash";

class BashWords {
 public:
  /// What `_gradus_words KEY` prints; no words, no branch.
  void add(const std::string& key, const std::vector<std::string>& words) {
    if (words.empty()) return;
    text_ += fmt::format("    {})\n      echo '", key);
    size_t column = 12;
    for (const auto& word : words) {
      if (column + word.size() > 96) {
        text_ += "\n        ";
        column = 8;
      }
      text_ += word + " ";
      column += word.size() + 1;
    }
    text_ += "'\n      ;;\n";
  }
  void add_flags(const std::string& of, const std::string& name, const std::vector<Flag>& flags) {
    std::vector<std::string> plain, negated;
    for (const auto& flag : flags) {
      plain.push_back("--" + flag.name);
      if (flag.is_switch()) negated.push_back("--no_" + flag.name);
    }
    add("flags" + of + ":" + name, plain);
    add("no" + of + ":" + name, negated);
  }
  std::string function() const {
    return "_gradus_words() {\n  case $1 in\n" + text_ + "  esac\n}\n";
  }

 private:
  std::string text_;
};

std::string bash_completion() {
  const auto commands = command_references();
  const auto task_flags = flags_of_tasks();
  BashWords words;
  std::vector<std::string> names;
  for (const auto& command : commands) names.push_back(command.name);
  words.add("commands", names);
  for (const auto& command : commands) {
    words.add("first:" + command.name, command.words);
    words.add_flags("", command.name, command.flags);
    for (const auto& flag : command.flags)
      words.add("values:" + command.name + ":" + flag.name, flag.choices);
    if (!command.has_tasks) continue;
    for (const auto& [flag, tasks] : task_flags)
      words.add("values:" + command.name + ":" + flag.name, flag.choices);
  }
  for (const auto& task : task_references()) words.add_flags("-of", task.name, task.flags);
  std::vector<Flag> all;
  for (const auto& [flag, tasks] : task_flags) all.push_back(flag);
  words.add_flags("-of", "", all);
  return header("bash") + words.function() + kBashFunction;
}

// ---- zsh -----------------------------------------------------------------------------------

std::string zsh_quoted(const std::string& text) { return "'" + replaced(text, "'", "'\\''") + "'"; }

std::string zsh_escaped(std::string text) {
  for (const auto* special : {"\\", "[", "]", ":"})
    text = replaced(text, special, std::string("\\") + special);
  return text;
}

/// The specification of a flag for `_arguments`.
std::string zsh_flag(const Flag& flag) {
  const auto help = "[" + zsh_escaped(first_sentence(flag.help)) + "]";
  if (flag.is_switch()) return zsh_quoted("--" + flag.name + help);
  const auto action = !flag.choices.empty() ? fmt::format("({})", fmt::join(flag.choices, " "))
                      : flag.takes_text()   ? "_files"
                                            : " ";
  return zsh_quoted("--" + flag.name + "=" + help + ":" + zsh_escaped(flag.type) + ":" + action);
}

std::string zsh_array(const char* name, const std::vector<Flag>& flags, int indent) {
  const std::string space(size_t(indent), ' ');
  auto text = fmt::format("{}{}=(\n", space, name);
  for (const auto& flag : flags) text += fmt::format("{}  {}\n", space, zsh_flag(flag));
  return text + space + ")\n";
}

std::string zsh_first_word(const CommandReference& command) {
  if (!command.words.empty())
    return zsh_quoted(fmt::format("1:word:({})", fmt::join(command.words, " "))) +
           " '*:file:_files'";
  return "'*:file:_files'";
}

std::string zsh_completion() {
  auto text = "#compdef gradus\n" + header("zsh") + R"zsh(
_gradus() {
  local curcontext=$curcontext context state state_descr line task
  local -a commands flags own
  typeset -A opt_args
  _arguments -C '(- *)'{-h,--help}'[list the commands]' \
    '(- *)'{-V,--version}'[print the version]' '1:command:->command' '*::argument:->argument' &&
    return
  if [[ $state == command ]]; then
    commands=(
)zsh";
  const auto commands = command_references();
  for (const auto& command : commands)
    text +=
        fmt::format("      {}\n", zsh_quoted(command.name + ":" + zsh_escaped(command.summary)));
  text +=
      "    )\n    _describe -t commands command commands\n    return\n  fi\n"
      "  case $words[1] in\n";
  for (const auto& command : commands) {
    if (command.has_tasks && command.name != "train") continue;
    text += fmt::format("    {})\n", command.has_tasks ? "train|eval|predict" : command.name);
    text += zsh_array("flags", command.flags, 6);
    if (command.has_tasks) {
      text +=
          "      task=${${(M)words:#--task=*}#--task=}\n"
          "      (( ${words[(I)--task]} )) && task=$words[${words[(I)--task]}+1]\n"
          "      case $task in\n";
      for (const auto& task : task_references())
        text += fmt::format("        {})\n{}          ;;\n", task.name,
                            zsh_array("own", task.flags, 10));
      std::vector<Flag> all;
      for (const auto& [flag, tasks] : flags_of_tasks()) all.push_back(flag);
      text += "        *)\n" + zsh_array("own", all, 10) + "          ;;\n      esac\n";
    }
    text += fmt::format("      _arguments $flags $own {}\n      ;;\n", zsh_first_word(command));
  }
  return text + "  esac\n}\n\n_gradus \"$@\"\n";
}

// ---- fish ----------------------------------------------------------------------------------

std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string fish_flag(const std::string& condition, const Flag& flag) {
  const auto value = flag.is_switch() ? std::string("-f")
                     : !flag.choices.empty()
                         ? "-x -a " + fish_quoted(fmt::format("{}", fmt::join(flag.choices, " ")))
                     : flag.takes_text() ? std::string("-r")
                                         : std::string("-x");
  return fmt::format("complete -c gradus -n {} -l {} {} -d {}\n", fish_quoted(condition), flag.name,
                     value, fish_quoted(first_sentence(flag.help)));
}

std::string fish_completion() {
  auto text = header("fish") + R"fish(
# Whether the command line is for one of the given tasks; without --task it may be for any.
function __gradus_task
  set -l words (commandline -opc)
  set -l at (contains -i -- --task $words); or return 0
  set at (math $at + 1)
  test $at -gt (count $words); or contains -- $words[$at] $argv
end

complete -c gradus -n __fish_use_subcommand -s h -l help -f -d 'list the commands'
complete -c gradus -n __fish_use_subcommand -s V -l version -f -d 'print the version'
)fish";
  const auto commands = command_references();
  for (const auto& command : commands)
    text += fmt::format("complete -c gradus -n __fish_use_subcommand -f -a {} -d {}\n",
                        command.name, fish_quoted(command.summary));
  for (const auto& command : commands) {
    if (command.has_tasks && command.name != "train") continue;
    const std::string seen =
        "__fish_seen_subcommand_from " + (command.has_tasks ? "train eval predict" : command.name);
    if (!command.words.empty())
      text += fmt::format("complete -c gradus -n {} -f -a {}\n", fish_quoted(seen),
                          fish_quoted(fmt::format("{}", fmt::join(command.words, " "))));
    for (const auto& flag : command.flags) text += fish_flag(seen, flag);
    if (!command.has_tasks) continue;
    for (const auto& [flag, tasks] : flags_of_tasks())
      text += fish_flag(fmt::format("{}; and __gradus_task {}", seen, fmt::join(tasks, " ")), flag);
  }
  return text;
}

}  // namespace

int completion(Words words) {
  const std::vector<std::string> shells = {"bash", "zsh", "fish"};
  const std::string usage = "usage: gradus completion bash|zsh|fish";
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    print_line(usage +
               "\n\nA script that completes commands, flags and values. For this shell alone:\n\n"
               "  bash: source <(gradus completion bash)\n"
               "  zsh:  source <(gradus completion zsh) after compinit\n"
               "  fish: gradus completion fish | source\n\n"
               "`cmake --install` puts the scripts where the shells look for them.");
    return 0;
  }
  const auto shell = words.empty() ? std::string("nothing") : words[0];
  if (words.size() != 1 || std::find(shells.begin(), shells.end(), shell) == shells.end())
    throw Error("G-CLI-4", ErrorKind::usage,
                "gradus completion takes " + join_or(shells) + ", received " +
                    (words.size() > 1 ? "several words" : shell),
                usage);
  print_text(shell == "bash"  ? bash_completion()
             : shell == "zsh" ? zsh_completion()
                              : fish_completion());
  return 0;
}

}  // namespace gradus::cli
