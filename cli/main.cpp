#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/version.h>
#include <signal.h>

#include <iostream>

#include "cli.h"

namespace gradus::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"train", "train a model: --task T --output_dir D and the flags of HF's script for the task",
       train},
      {"eval", "evaluate a trained model; the same flags", eval},
      {"predict", "write predictions of a trained model; the same flags", predict},
      {"generate",
       "text from a language model: --model_name_or_path DIR --prompt TEXT, --prompt_file F or "
       "--chat",
       generate},
      {"tokenize", "text, JSONL, Parquet … to memory-mapped tokens", tokenize},
      {"data", "`data show FILE`: schema, counts, lengths and first rows of a data file", data},
      {"show", "run folders as tables and curves", show},
      {"verify", "check a checkpoint or a run folder: what is complete, what is damaged", verify},
      {"options", "every training option with default and meaning; --json for tools", options},
      {"doctor", "what was found on this machine, and what is missing", doctor},
  };
  return all;
}

bool take_json_flag(std::vector<std::string>& words) { return std::erase(words, "--json") > 0; }
void print_line(const std::string& text) { std::cout << text << std::endl; }

namespace {

std::string usage() {
  std::string text = fmt::format(
      "gradus {}: the Hugging Face Trainer in C++\n\nusage: gradus <command> "
      "[config.yaml|config.json] [--flags]\n\n",
      kVersion);
  for (const auto& command : commands())
    text += fmt::format("  {:<9} {}\n", command.name, command.summary);
  return text +
         "\n`gradus <command> --help` says more. Every command takes --json: one document on "
         "stdout, all else on stderr.\n";
}

int dispatch(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    (words.empty() ? std::cerr : std::cout) << usage();
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "--version") {
    print_line(fmt::format("gradus {}", kVersion));
    return 0;
  }
  for (const auto& command : commands())
    if (words[0] == command.name) return command.run(Words(words).subspan(1));
  std::vector<std::string> names;
  for (const auto& command : commands()) names.emplace_back(command.name);
  throw Error("G-CLI-1", ErrorKind::usage,
              "there is no command '" + words[0] + "'; expected " + join_or(names),
              did_you_mean(words[0], names) + " `gradus --help` lists them.");
}

}  // namespace
}  // namespace gradus::cli

int main(int argc, char** argv) {
  // A full pipe or a file-size limit is an error to report, not a reason to die.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  try {
    return gradus::cli::dispatch(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const gradus::Error& error) {
    std::cerr << error.what() << std::endl;
    return error.kind() == gradus::ErrorKind::usage ? 2 : 1;
  } catch (const c10::Error& error) {
    std::cerr << "gradus: LibTorch failed: " << error.what_without_backtrace() << " [G-CLI-2]"
              << std::endl;
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "gradus: " << error.what() << " [G-CLI-3]" << std::endl;
    return 1;
  }
}
