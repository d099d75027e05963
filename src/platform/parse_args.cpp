#include <gradus/config/option_set.h>
#include <gradus/config/parse_args.h>
#include <gradus/config/training_options.h>
#include <gradus/core/error.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

// The one place of the library that prints by itself and ends the process; cli/ has its own.
namespace gradus {
namespace {

template <class Args>
Args parse_or_exit(int argc, const char* const* argv, Args args,
                   std::span<const OptionRow<Args>> rows) {
  const std::string program =
      argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "program";
  try {
    const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    OptionSet options;
    options.add(args, rows);
    if (options.parse(words).help) {
      const auto text = "Usage: " + program + " [config.yaml|config.json] [--option value]...\n\n" +
                        options.help();
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::exit(0);
    }
    return args.resolved();
  } catch (const Error& error) {
    const auto text = std::string(error.what()) + "\n";
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::exit(2);
  }
}

}  // namespace

TrainingArguments parse_args(int argc, const char* const* argv, TrainingArguments defaults) {
  return parse_or_exit(argc, argv, std::move(defaults), training_options());
}

Seq2SeqTrainingArguments parse_seq2seq_args(int argc, const char* const* argv,
                                            Seq2SeqTrainingArguments defaults) {
  return parse_or_exit(argc, argv, std::move(defaults), seq2seq_training_options());
}

}  // namespace gradus
