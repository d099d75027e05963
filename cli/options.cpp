#include <gradus/config/training_options.h>
#include <gradus/core/error.h>

#include "cli.h"

namespace gradus::cli {

int options(Words words) {
  std::vector<std::string> rest(words.begin(), words.end());
  const bool json = take_json_flag(rest);
  const bool markdown = std::erase(rest, "--markdown") > 0;
  if (!rest.empty() && (rest[0] == "--help" || rest[0] == "-h")) {
    print_line(
        "usage: gradus options [--json | --markdown]\n\nEvery training option with its default and "
        "meaning.");
    return 0;
  }
  if (!rest.empty())
    throw Error("G-CLI-4", ErrorKind::usage,
                "gradus options does not take '" + rest[0] + "'; expected --json or --markdown",
                "Leave it out.");
  auto text = json ? options_json() : markdown ? options_markdown() : options_text();
  if (text.ends_with('\n')) text.pop_back();  // print_line adds its own
  print_line(text);
  return 0;
}

}  // namespace gradus::cli
