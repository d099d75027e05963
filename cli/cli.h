#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace gradus::cli {

using Words = std::span<const std::string>;

struct Flag;

/// One command of the program. `run` returns the exit code and throws `gradus::Error` for what is
/// wrong.
struct Command {
  std::string name;
  std::string summary;
  std::function<int(Words words)> run;
  const char* arguments = "";                          ///< what comes before the flags: "FILE…"
  std::function<std::vector<Flag>()> flags = nullptr;  ///< none: only --json
  std::vector<std::string> words = {};  ///< what the first argument may be, if not a path
  bool has_tasks = false;               ///< takes --task and the flags of that task
  std::string task = {};                ///< the command is short for `train --task` with this one
};

int train(Words words);
int train_task(const std::string& task, Words words);
int eval(Words words);
int predict(Words words);
int generate(Words words);
int options(Words words);
int doctor(Words words);
int verify(Words words);
int show(Words words);
int watch(Words words);
int serve(Words words);
int report(Words words);
int data(Words words);
int tokenize(Words words);
int merge(Words words);
int consolidate(Words words);
int completion(Words words);
int man(Words words);
int launch(Words words);
int sweep(Words words);
int plan(Words words);
int cache(Words words);

/// The flags of the commands that have some, for completion and the man page.
std::vector<Flag> training_flags();
std::vector<Flag> flags_of_task(const std::string& task);
std::vector<Flag> generate_flags();
std::vector<Flag> tokenize_flags();
std::vector<Flag> data_flags();
std::vector<Flag> merge_flags();
std::vector<Flag> consolidate_flags();
std::vector<Flag> options_flags();
std::vector<Flag> launch_flags();
std::vector<Flag> sweep_flags();
std::vector<Flag> plan_flags();
std::vector<Flag> cache_flags();
std::vector<Flag> watch_flags();
std::vector<Flag> serve_flags();
std::vector<Flag> report_flags();
std::vector<Flag> no_flags();

const std::vector<Command>& commands();

/// Whether `--json` is among the words; takes it out.
bool take_json_flag(std::vector<std::string>& words);
/// stdout, and nothing else: a line, or text that ends its own lines.
void print_line(const std::string& text);
void print_text(const std::string& text);

}  // namespace gradus::cli
