// man: the page gradus(1), made from the commands and the option tables.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/version.h>

#include "cli.h"
#include "reference.h"

namespace gradus::cli {
namespace {

/// Text that roff prints as it stands.
std::string roff(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else if (c == '`' || c == '\n')
      escaped += c == '\n' ? " " : "";
    else
      escaped += c;
  }
  // A line that begins with a dot or a quote would be taken for a request.
  return escaped.starts_with('.') || escaped.starts_with('\'') ? "\\&" + escaped : escaped;
}

std::string section(const std::string& title) { return ".SH " + title + "\n"; }
std::string subsection(const std::string& title) { return ".SS \"" + roff(title) + "\"\n"; }

std::string entry(const std::string& tag, const std::string& text) {
  return ".TP\n" + tag + "\n" + roff(text) + "\n";
}

std::string flag_entry(const Flag& flag) {
  const auto tag = fmt::format(".BI {}{}", roff("--" + flag.name),
                               flag.is_switch() ? "" : " \" " + roff(flag.type) + "\"");
  auto text = flag.help;
  if (!flag.choices.empty()) text += fmt::format(" One of {}.", fmt::join(flag.choices, ", "));
  if (!flag.default_value.empty()) text += " Default: " + flag.default_value + ".";
  return entry(flag.is_switch() ? ".B " + roff("--" + flag.name) : tag, text);
}

std::string flag_entries(const std::vector<Flag>& flags, bool with_groups) {
  std::string text, group;
  for (const auto& flag : flags) {
    if (with_groups && flag.group != group) text += subsection(flag.group);
    group = flag.group;
    text += flag_entry(flag);
  }
  return text;
}

std::string synopsis(const std::vector<CommandReference>& commands) {
  auto text = section("SYNOPSIS");
  for (const auto& command : commands)
    text += fmt::format(".B gradus {}\n{}.br\n", roff(command.name),
                        command.arguments.empty() ? "" : ".I " + roff(command.arguments) + "\n");
  return text + ".B gradus\n.RB [ \\-\\-help \" | \" \\-\\-version ]\n";
}

std::string commands_section(const std::vector<CommandReference>& commands) {
  auto text = section("COMMANDS");
  for (const auto& command : commands) text += entry(".B " + roff(command.name), command.summary);
  return text;
}

std::string options_sections(const std::vector<CommandReference>& commands) {
  std::string text;
  for (const auto& command : commands) {
    if (command.flags.empty() || !command.task.empty() ||
        (command.has_tasks && command.name != "train"))
      continue;
    const bool is_long = command.flags.size() > 20;
    text += section(command.has_tasks ? "\"OPTIONS OF TRAIN, EVAL AND PREDICT\""
                                      : fmt::format("\"OPTIONS OF {}\"", command.name));
    if (command.has_tasks)
      text += roff(
                  "Flags may be written with dashes or underscores, as --flag value or "
                  "--flag=value. A switch is turned off by --no_flag or --flag false. All of them "
                  "may stand in a YAML or JSON file, under their names without dashes.") +
              "\n";
    text += flag_entries(command.flags, is_long);
    if (!command.has_tasks) continue;
    for (const auto& task : task_references())
      text += section(fmt::format("\"OPTIONS OF THE TASK {}\"", roff(task.name))) +
              flag_entries(task.flags, /*with_groups=*/false);
  }
  return text;
}

std::string man_page() {
  const auto commands = command_references();
  auto text = fmt::format(
      ".\\\" Made by `gradus man`.\n"
      ".TH GRADUS 1 \"\" \"gradus {}\" \"User Commands\"\n",
      kVersion);
  text += section("NAME") + "gradus \\- the Hugging Face Trainer in C++ on LibTorch\n";
  text += synopsis(commands);
  text += section("DESCRIPTION") +
          roff(
              "gradus trains, evaluates and uses models in the formats of Hugging Face, with the "
              "options, files and numbers of the Python package transformers.") +
          "\n";
  text += commands_section(commands);
  text += options_sections(commands);
  text += section("EXIT STATUS") + entry(".B 0", "Success.") +
          entry(".B 1", "A failure: of a file, of the data, of the machine.") +
          entry(".B 2", "The command line or a config file is wrong; nothing was begun.") +
          entry(".B 130, 143",
                "Ctrl-C or SIGTERM: the run was saved and stopped. The same command with "
                "--resume_from_checkpoint last goes on.");
  text += section("ENVIRONMENT") +
          entry(".B TENSORBOARD_LOGGING_DIR", "The folder of the TensorBoard tracker.") +
          entry(".B XDG_CACHE_HOME", "Where prepared data sets are kept; default ~/.cache.") +
          entry(".B COLUMNS", "The width of a terminal that does not tell its own.");
  return text;
}

}  // namespace

int man(Words words) {
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    print_line("usage: gradus man\n\nThe man page gradus(1). Read it with: gradus man | man -l -");
    return 0;
  }
  if (!words.empty())
    throw Error("G-CLI-4", ErrorKind::usage,
                "gradus man does not take '" + words[0] + "'; expected nothing", "Leave it out.");
  print_text(man_page());
  return 0;
}

}  // namespace gradus::cli
