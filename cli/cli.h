#pragma once

#include <span>
#include <string>
#include <vector>

namespace gradus::cli {

using Words = std::span<const std::string>;

/// One command of the program. Each returns the exit code and throws `gradus::Error` for what is
/// wrong.
struct Command {
  const char* name;
  const char* summary;
  int (*run)(Words words);
};

int train(Words words);
int eval(Words words);
int predict(Words words);
int generate(Words words);
int options(Words words);
int doctor(Words words);
int verify(Words words);
int show(Words words);
int data(Words words);
int tokenize(Words words);

const std::vector<Command>& commands();

/// Whether `--json` is among the words; takes it out.
bool take_json_flag(std::vector<std::string>& words);
/// stdout, and nothing else.
void print_line(const std::string& text);

}  // namespace gradus::cli
