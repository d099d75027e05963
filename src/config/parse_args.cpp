#include <gradus/config/parse_args.h>
#include <gradus/core/error.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

// The one place of the library that prints by itself and ends the process; cli/ has its own.
namespace gradus {

void parse_args_into(TrainerArguments& arguments, int argc, const char* const* argv) {
  const std::string program =
      argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "program";
  try {
    const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    OptionSet options;
    arguments.add_to(options);
    if (options.parse(words).help) {
      const auto text = "Usage: " + program + " [config.yaml|config.json] [--option value]...\n\n" +
                        options.help();
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::exit(0);
    }
    arguments.resolve();
  } catch (const Error& error) {
    const auto text = std::string(error.what()) + "\n";
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::exit(2);
  }
}

TrainingArguments parse_args(int argc, const char* const* argv, TrainingArguments defaults) {
  return parse_args<TrainingArguments>(argc, argv, std::move(defaults));
}

}  // namespace gradus
