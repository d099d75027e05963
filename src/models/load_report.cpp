#include "models/load_report.h"

#include <gradus/core/error.h>
#include <gradus/core/log.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

namespace gradus {

namespace {

constexpr size_t kListed = 10;  // numbers written out; more become "first...last"

bool is_number(const std::string& part) {
  return !part.empty() && part.size() < 10 &&
         part.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> split_dots(const std::string& name) {
  std::vector<std::string> parts(1);
  for (const char letter : name)
    if (letter == '.')
      parts.emplace_back();
    else
      parts.back() += letter;
  return parts;
}

std::string numbers_text(const std::set<int>& numbers) {
  if (numbers.size() == 1) return std::to_string(*numbers.begin());
  if (numbers.size() > kListed)
    return fmt::format("{{{}...{}}}", *numbers.begin(), *numbers.rbegin());
  return fmt::format("{{{}}}", fmt::join(numbers, ", "));
}

}  // namespace

std::vector<std::string> merge_numbered_names(const std::vector<std::string>& names) {
  struct Group {
    std::vector<std::string> parts;
    std::vector<std::set<int>> numbers;  // one per part; empty where the part is text
  };
  std::vector<std::pair<std::string, Group>> groups;
  for (const auto& name : names) {
    const auto parts = split_dots(name);
    std::string pattern;
    for (const auto& part : parts) pattern += (is_number(part) ? "*" : part) + ".";
    auto found = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& group) { return group.first == pattern; });
    if (found == groups.end())
      found =
          groups.insert(groups.end(), {pattern, {parts, std::vector<std::set<int>>(parts.size())}});
    for (size_t i = 0; i < parts.size(); ++i)
      if (is_number(parts[i])) found->second.numbers[i].insert(std::stoi(parts[i]));
  }
  std::vector<std::string> merged;
  for (const auto& [pattern, group] : groups) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < group.parts.size(); ++i)
      parts.push_back(group.numbers[i].empty() ? group.parts[i] : numbers_text(group.numbers[i]));
    merged.push_back(fmt::format("{}", fmt::join(parts, ".")));
  }
  return merged;
}

void tell_load_report(const LoadReport& report, const std::string& class_name,
                      const std::filesystem::path& directory, const PretrainedOptions& options) {
  if (report.clean()) return;
  struct Row {
    std::string key, status, detail;
  };
  std::vector<Row> rows;
  for (const auto& name : merge_numbered_names(report.unexpected))
    rows.push_back({name, "UNEXPECTED", ""});
  for (const auto& name : merge_numbered_names(report.missing))
    rows.push_back({name, "MISSING", ""});
  for (const auto& entry : report.mismatched)
    rows.push_back({entry.name, "MISMATCH",
                    fmt::format("file [{}], model [{}]", fmt::join(entry.file, ", "),
                                fmt::join(entry.model, ", "))});
  size_t width = 3;
  for (const auto& row : rows) width = std::max(width, row.key.size());
  auto text = fmt::format("{} LOAD REPORT from: {}\n{:<{}} | Status     |\n{:-<{}}-+------------+",
                          class_name, directory.string(), "Key", width, "", width);
  for (const auto& row : rows)
    text += fmt::format("\n{:<{}} | {:<10} | {}", row.key, width, row.status, row.detail);
  text += "\n\nNotes:";
  if (!report.unexpected.empty())
    text +=
        "\n- UNEXPECTED: can be ignored when loading from another task or architecture; not if the "
        "same one is expected.";
  if (!report.missing.empty())
    text +=
        "\n- MISSING: newly initialised because the files do not hold them. Consider training on "
        "your task.";
  if (!report.mismatched.empty()) text += "\n- MISMATCH: the files hold another shape.";

  const bool refuse = (!report.mismatched.empty() && !options.ignore_mismatched_sizes) ||
                      (options.strict && (!report.missing.empty() || !report.unexpected.empty()));
  if (!refuse) return log_warning(text);
  const auto advice =
      report.mismatched.empty() || options.ignore_mismatched_sizes
          ? "Load without strict to accept this, or use the folder of the same architecture and "
            "task."
          : "Correct config.json, or set ignore_mismatched_sizes to initialise such tensors.";
  throw Error(
      "G-MODEL-8", ErrorKind::model,
      fmt::format("the weights in {} do not fit {}\n{}", directory.string(), class_name, text),
      advice);
}

}  // namespace gradus
