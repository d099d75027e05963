#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/core/memory.h>
#include <gradus/core/nearest.h>
#include <gradus/core/printable.h>
#include <gradus/tasks/task.h>
#include <gradus/version.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <string_view>

#include "cli.h"
#include "core/write_all.h"
#include "reference.h"

namespace gradus::cli {

namespace {

// `gradus sft …` for those of trl's commands whose task there is.
std::vector<Command> task_commands() {
  const auto tasks = task_names();
  std::vector<Command> all;
  for (const std::string task : {"sft", "reward", "dpo", "kto", "grpo", "rloo"})
    if (std::find(tasks.begin(), tasks.end(), task) != tasks.end())
      all.push_back({.name = task,
                     .summary = "short for train --task " + task,
                     .run = [task](Words words) { return train_task(task, words); },
                     .arguments = "[config.yaml|config.json] [flags]",
                     .flags = [task] { return flags_of_task(task); },
                     .task = task});
  return all;
}

std::vector<Command> all_commands() {
  std::vector<Command> all = {
      {.name = "train",
       .summary =
           "train a model: --task T --output_dir D and the flags of transformers' script for the "
           "task",
       .run = train,
       .arguments = "[config.yaml|config.json] [flags]",
       .flags = training_flags,
       .has_tasks = true},
      {.name = "eval",
       .summary = "evaluate a trained model; the same flags",
       .run = eval,
       .arguments = "[config.yaml|config.json] [flags]",
       .flags = training_flags,
       .has_tasks = true},
      {.name = "predict",
       .summary = "write predictions of a trained model; the same flags",
       .run = predict,
       .arguments = "[config.yaml|config.json] [flags]",
       .flags = training_flags,
       .has_tasks = true},
      {.name = "launch",
       .summary = "several processes that train together: --nproc N train ...",
       .run = launch,
       .arguments = "[flags] train|-- PROGRAM ...",
       .flags = launch_flags},
      {.name = "plan",
       .summary = "what a run will need: memory term by term, the largest batch, time and energy; "
                  "the flags of train",
       .run = plan,
       .arguments = "[config.yaml|config.json] [flags]",
       .flags = plan_flags,
       .has_tasks = true},
      {.name = "cache",
       .summary = "`cache list`, `cache clean`: prepared data on this machine",
       .run = cache,
       .arguments = "list|clean [flags]",
       .flags = cache_flags,
       .words = {"list", "clean"}},
      {.name = "sweep",
       .summary = "search for good parameters: SPACE.yaml --output_dir D --n_trials N",
       .run = sweep,
       .arguments = "SPACE.yaml [flags] [-- TRAIN FLAGS]",
       .flags = sweep_flags},
      {.name = "generate",
       .summary =
           "text from a language model: --model_name_or_path DIR --prompt TEXT, --prompt_file F or "
           "--chat",
       .run = generate,
       .arguments = "[flags]",
       .flags = generate_flags},
      {.name = "merge",
       .summary = "add a LoRA adapter to its model: --adapter_name_or_path DIR --output_dir DIR",
       .run = merge,
       .arguments = "[flags]",
       .flags = merge_flags},
      {.name = "consolidate",
       .summary = "a checkpoint that several processes wrote in parts as one folder: DIR "
                  "--output_dir DIR",
       .run = consolidate,
       .arguments = "DIR [flags]",
       .flags = consolidate_flags},
      {.name = "tokenize",
       .summary = "text, JSONL, Parquet … to memory-mapped tokens",
       .run = tokenize,
       .arguments = "FILE… [flags]",
       .flags = tokenize_flags},
      {.name = "data",
       .summary = "`data show FILE`: schema, counts, lengths and first rows of a data file",
       .run = data,
       .arguments = "show FILE… [flags]",
       .flags = data_flags,
       .words = {"show"}},
      {.name = "watch",
       .summary = "a run that is under way or has ended, live in the terminal",
       .run = watch,
       .arguments = "DIR|FILE… [flags]",
       .flags = watch_flags},
      {.name = "serve",
       .summary = "a page in the browser with all runs of a folder: curves, settings, samples",
       .run = serve,
       .arguments = "DIR [flags]",
       .flags = serve_flags},
      {.name = "report",
       .summary = "runs as one page to send to somebody (--html FILE) or a picture (--png FILE)",
       .run = report,
       .arguments = "DIR [flags]",
       .flags = report_flags},
      {.name = "show",
       .summary = "run folders as tables and curves",
       .run = show,
       .arguments = "DIR… [--json]"},
      {.name = "verify",
       .summary = "check a checkpoint or a run folder: what is complete, what is damaged",
       .run = verify,
       .arguments = "DIR [--json]"},
      {.name = "options",
       .summary = "every training option with default and meaning; --json for tools",
       .run = options,
       .arguments = "[flags]",
       .flags = options_flags},
      {.name = "doctor",
       .summary = "what was found on this machine, and what is missing",
       .run = doctor,
       .arguments = "[--json]"},
      {.name = "completion",
       .summary = "a script that completes commands and flags: bash, zsh or fish",
       .run = completion,
       .arguments = "bash|zsh|fish",
       .flags = no_flags,
       .words = {"bash", "zsh", "fish"}},
      {.name = "man", .summary = "the manual page, for `man -l -`", .run = man, .flags = no_flags},
  };
  const auto short_ones = task_commands();
  const auto after_predict =
      std::find_if(all.begin(), all.end(), [](const auto& each) { return !each.has_tasks; });
  all.insert(after_predict, short_ones.begin(), short_ones.end());
  return all;
}

}  // namespace

const std::vector<Command>& commands() {
  static const auto all = all_commands();
  return all;
}

bool take_json_flag(std::vector<std::string>& words) { return std::erase(words, "--json") > 0; }
void print_line(const std::string& text) { print_text(text + "\n"); }
void print_text(const std::string& text) {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const auto shown = terminal ? printable(text) : text;
  if (!write_all(STDOUT_FILENO, shown))
    throw Error("G-IO-2", ErrorKind::io,
                "cannot write to the standard output: " + system_reason(errno),
                "What was printed is not complete. Check free space, or who reads the pipe.");
}

namespace {

std::string usage() {
  std::string text = fmt::format(
      "gradus {}: the Hugging Face Trainer in C++\n\nusage: gradus <command> "
      "[config.yaml|config.json] [--flags]\n\n",
      kVersion);
  for (const auto& command : commands())
    text += fmt::format("  {:<10} {}\n", command.name, command.summary);
  return text +
         "\n`gradus <command> --help` says more, `gradus --version` (-V) which version this is.\n"
         "Commands with results take --json: one document on stdout, all else on stderr.\n";
}

// LibTorch says it in words of its own.
bool is_out_of_memory(const c10::Error& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         error.msg().find("can't allocate memory") != std::string::npos;
}

int report_error(const Error& error) {
  // Of the processes that lost another one, the first says so.
  if (error.id() == "G-DIST-2" && error.advice().empty()) return 1;
  std::cerr << error.what() << std::endl;
  return error.kind() == ErrorKind::usage ? 2 : 1;
}

int dispatch(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    if (words.empty()) {
      log_print(usage());
      return 2;
    }
    print_text(usage());
    return 0;
  }
  if (words[0] == "--version" || words[0] == "-V") {
    print_line(fmt::format("gradus {}", kVersion));
    return 0;
  }
  for (const auto& command : commands()) {
    if (words[0] != command.name) continue;
    if (command.has_tasks || !command.task.empty()) keep_freed_memory();  // it makes steps
    return command.run(Words(words).subspan(1));
  }
  std::vector<std::string> names;
  for (const auto& command : commands()) names.emplace_back(command.name);
  throw Error("G-CLI-1", ErrorKind::usage,
              "there is no command '" + words[0] + "'; expected " + join_or(names),
              did_you_mean(words[0], names) + " `gradus --help` lists them.");
}

// Without these, the first files that are opened would be standard input, output and errors, and
// what is printed would be written into them.
void open_standard_files() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(file, F_GETFD) >= 0) continue;
    // Results that nobody can receive are an error; messages are not.
    const int opened = ::open("/dev/null", file == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != file) {
      ::dup2(opened, file);
      ::close(opened);
    }
  }
}

void say_last_words(std::string_view text) {
  static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
}

// An exception that nothing can catch: of a thread, or of a destructor when memory runs out. The
// handler itself must not need memory then.
[[noreturn]] void end_with_a_message() {
  constexpr std::string_view kCannotGoOn =
      "gradus: the program cannot go on: an exception left a thread or a destructor [G-CLI-3]\n";
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
    say_last_words(kCannotGoOn);
  } catch (const std::bad_alloc&) {
    say_last_words(
        "gradus: memory ran out [G-MEM-1]\n  Give the program more memory, or give it less to do: "
        "smaller files, batches or models.\n");
  } catch (const std::exception& error) {
    say_last_words(kCannotGoOn);
    try {
      say_last_words("  It said: " + printable(error.what()) + "\n");
    } catch (...) {
    }
  } catch (...) {
    say_last_words(kCannotGoOn);
  }
  ::_exit(1);
}

// What the standard library says about a path, as other errors of files.
Error error_of_path(const std::filesystem::filesystem_error& error) {
  const auto path = error.path1().string();
  return {"G-IO-1", ErrorKind::io,
          "cannot use " + (path.empty() ? "a path" : path) + ": " + error.code().message(),
          "Check that the path is right and may be read by this user."};
}

}  // namespace
}  // namespace gradus::cli

int main(int argc, char** argv) {
  gradus::cli::open_standard_files();
  std::set_terminate(gradus::cli::end_with_a_message);
  // A full pipe or a file-size limit is an error to report, not a reason to die.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    return gradus::name_memory_errors(
        [&] { return "`gradus " + (words.empty() ? "" : words[0]) + "` was at work"; },
        [&] { return gradus::cli::dispatch(words); });
  } catch (const gradus::Error& error) {
    return gradus::cli::report_error(error);
  } catch (const c10::Error& error) {
    if (gradus::cli::is_out_of_memory(error))
      return gradus::cli::report_error(gradus::out_of_memory(std::string("LibTorch was at work: ") +
                                                             error.what_without_backtrace()));
    std::cerr << "gradus: LibTorch failed: " << gradus::printable(error.what_without_backtrace())
              << " [G-CLI-2]" << std::endl;
    return 1;
  } catch (const std::filesystem::filesystem_error& error) {
    return gradus::cli::report_error(gradus::cli::error_of_path(error));
  } catch (const std::exception& error) {
    std::cerr << "gradus: " << gradus::printable(error.what()) << " [G-CLI-3]" << std::endl;
    return 1;
  }
}
