#include "prompts.h"
#include "core/parsed_json.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>

#include <iostream>
#include <iterator>
#include <sstream>

namespace gradus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kColumns[] = {"prompt", "text", "messages"};

[[noreturn]] void refuse_prompt(ErrorKind kind, const std::string& message,
                                const std::string& advice) {
  throw Error("G-CLI-6", kind, message, advice);
}

Prompt text_prompt(const std::string& text, std::string where, const GenerateFlags& flags,
                   ErrorKind kind) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    refuse_prompt(kind, where + " is empty", "Give a text to continue.");
  Prompt prompt{.text = text, .where = std::move(where)};
  if (flags.chat) prompt.messages = chat_of(text, flags.system);
  return prompt;
}

Prompt row_prompt(const ordered_json& row, const std::string& where, const GenerateFlags& flags) {
  if (row.is_string()) return text_prompt(row.get<std::string>(), where, flags, ErrorKind::data);
  if (!row.is_object())
    refuse_prompt(ErrorKind::data,
                  fmt::format("{}: expected an object with a prompt, received {}", where,
                              dump_json(row).substr(0, 60)),
                  "Write a row as {\"prompt\": \"…\"}.");
  const ordered_json* value = nullptr;
  for (const std::string name : kColumns) {
    const auto found = row.find(flags.prompt_column.value_or(name));
    if (value == nullptr && found != row.end() && !found->is_null()) value = &*found;
  }
  if (value == nullptr) {
    std::string names;
    for (const auto& item : row.items()) names += (names.empty() ? "" : ", ") + item.key();
    refuse_prompt(ErrorKind::data,
                  fmt::format("{} has no column {}; it has {}", where,
                              flags.prompt_column.value_or("prompt, text or messages"),
                              names.empty() ? "none" : names),
                  "Name the column with --prompt_column.");
  }
  if (value->is_string())
    return text_prompt(value->get<std::string>(), where, flags, ErrorKind::data);
  if (!value->is_array() || value->empty())
    refuse_prompt(ErrorKind::data,
                  fmt::format("{}: the prompt must be a text or a list of messages, received {}",
                              where, dump_json(*value).substr(0, 60)),
                  "Messages are [{\"role\": \"user\", \"content\": \"…\"}].");
  Prompt prompt{.messages = *value, .where = where};
  if (flags.system && (*value)[0].value("role", "") != "system")
    prompt.messages.insert(prompt.messages.begin(),
                           ordered_json{{"role", "system"}, {"content", *flags.system}});
  return prompt;
}

std::vector<Prompt> file_prompts(const GenerateFlags& flags) {
  const auto& name = *flags.prompt_file;
  const bool standard = name == "-";
  const auto content = standard ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                                : read_file(expand_user(name));
  std::vector<Prompt> prompts;
  if (name.ends_with(".json")) {
    const auto rows = ordered_json_or_discarded(content);
    if (rows.is_array()) {
      for (size_t i = 0; i < rows.size(); ++i)
        prompts.push_back(row_prompt(rows[i], fmt::format("{}: row {}", name, i + 1), flags));
      return prompts;
    }
  }
  const bool json = name.ends_with(".jsonl") || name.ends_with(".json");
  std::istringstream lines(content);
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const auto where = fmt::format("{}:{}", standard ? "stdin" : name, number);
    if (!json) {
      prompts.push_back(text_prompt(line, where, flags, ErrorKind::data));
      continue;
    }
    const auto row = ordered_json_or_discarded(line);
    if (row.is_discarded())
      refuse_prompt(ErrorKind::data, fmt::format("{} is not JSON: {}", where, line.substr(0, 60)),
                    "A .jsonl file has one JSON object a line.");
    prompts.push_back(row_prompt(row, where, flags));
  }
  if (prompts.empty())
    refuse_prompt(ErrorKind::data, fmt::format("{} holds no prompt", standard ? "stdin" : name),
                  "Write one prompt a line.");
  return prompts;
}

}  // namespace

std::string Prompt::title() const {
  const auto line = messages.is_null() ? text
                    : messages.empty() || !messages.back().is_object()
                        ? std::string()
                        : dump_json(messages.back().value("content", ordered_json("")));
  return line.substr(0, line.find('\n'));
}

ordered_json chat_of(const std::optional<std::string>& text,
                     const std::optional<std::string>& system) {
  auto messages = ordered_json::array();
  if (system) messages.push_back({{"role", "system"}, {"content", *system}});
  if (text) messages.push_back({{"role", "user"}, {"content", *text}});
  return messages;
}

std::vector<Prompt> read_prompts(const GenerateFlags& flags) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < flags.prompt.size(); ++i)
    prompts.push_back(text_prompt(
        flags.prompt[i], flags.prompt.size() == 1 ? "--prompt" : fmt::format("--prompt {}", i + 1),
        flags, ErrorKind::usage));
  if (!flags.prompt_file) return prompts;
  for (auto& prompt : file_prompts(flags)) prompts.push_back(std::move(prompt));
  return prompts;
}

}  // namespace gradus::cli
