#include "tasks/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/nearest.h>

namespace gradus {
namespace {

struct Entry {
  std::string name;
  std::unique_ptr<Task> (*make)();
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {"causal-lm", make_causal_lm},
      {"masked-lm", make_masked_lm},
      {"text-classification", make_text_classification},
      {"token-classification", make_token_classification},
      {"image-classification", make_image_classification},
  };
  return all;
}

}  // namespace

const std::vector<std::string>& task_names() {
  static const auto names = [] {
    std::vector<std::string> all;
    for (const auto& entry : entries()) all.push_back(entry.name);
    return all;
  }();
  return names;
}

std::unique_ptr<Task> make_task(const std::string& name) {
  for (const auto& entry : entries())
    if (entry.name == name) return entry.make();
  throw Error(
      "G-TASK-1", ErrorKind::usage,
      name.empty() ? "no task was given" : "there is no task '" + name + "'",
      fmt::format(
          "{}Set --task to {}.",
          did_you_mean(name, task_names()).empty() ? "" : did_you_mean(name, task_names()) + " ",
          join_or(task_names())));
}

}  // namespace gradus
