// What options_test.py asks of our side, one JSON document a line:
//   config_tool options            the option list
//   config_tool docs               the page docs/user/options.md
//   config_tool resolve < LINES    each line a dictionary of options; answers {"ok": resolved} or
//   {"error": id, "message": …} config_tool parse < LINES      each line a list of command-line
//   words; answers the same
#include <gradus/config/training_options.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>

#include <iostream>

namespace {

nlohmann::ordered_json answer(const std::string& mode, const nlohmann::json& line) try {
  if (mode == "resolve")
    return {{"ok", gradus::TrainingArguments::from_json(line).resolved().to_dict()}};
  gradus::TrainingArguments args;
  gradus::OptionSet options;
  options.add(args, gradus::training_options());
  options.parse(line.get<std::vector<std::string>>());
  return {{"ok", args.resolved().to_dict()}};
} catch (const gradus::Error& error) {
  return {{"error", error.id()}, {"message", error.message()}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "options";
  if (mode == "options") std::cout << gradus::options_json();
  if (mode == "docs") std::cout << gradus::options_markdown();
  if (mode != "resolve" && mode != "parse") return 0;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << gradus::dump_json(answer(mode, gradus::parse_json(line))) << '\n';
}
