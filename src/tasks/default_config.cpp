#include "tasks/default_config.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/models/auto_model.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace gradus::tasks {
namespace {

// The key's name in this model type: "n_embd" for GPT-2's "hidden_size".
std::string own_name(const std::string& model_type, const std::string& key) {
  const auto defaults = model_defaults(model_type);
  if (!defaults) return key;
  const auto alias = defaults->aliases.find(key);
  return alias == defaults->aliases.end() ? key : alias->second;
}

[[noreturn]] void refuse_override(const std::string& message, const std::string& advice) {
  throw Error("G-TASK-8", ErrorKind::usage, "--config_overrides: " + message, advice);
}

template <class Number>
Number number_of(const std::string& key, const std::string& text, const char* expected) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    refuse_override(fmt::format("{} must be {}, received \"{}\"", key, expected, text),
                    "Correct the value.");
  return value;
}

bool flag_of(const std::string& key, std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return char(std::tolower(letter)); });
  for (const auto* yes : {"true", "1", "y", "yes"})
    if (text == yes) return true;
  for (const auto* no : {"false", "0", "n", "no"})
    if (text == no) return false;
  refuse_override(fmt::format("{} must be true or false, received \"{}\"", key, text),
                  "Correct the value.");
}

void set_override(nlohmann::json& config, const std::string& pair) {
  const auto equals = pair.find('=');
  if (equals == std::string::npos)
    refuse_override(fmt::format("expected key=value, received \"{}\"", pair),
                    "Write --config_overrides n_embd=64,n_layer=2");
  const auto key = own_name(config.value("model_type", ""), pair.substr(0, equals)),
             text = pair.substr(equals + 1);
  if (!config.contains(key)) {
    std::vector<std::string> known;
    for (const auto& [name, value] : config.items()) known.push_back(name);
    refuse_override(
        fmt::format("the configuration of {} has no key {}", config.value("model_type", ""), key),
        did_you_mean(key, known));
  }
  auto& value = config[key];
  if (value.is_boolean())
    value = flag_of(key, text);
  else if (value.is_number_integer())
    value = number_of<int64_t>(key, text, "an integer");
  else if (value.is_number_float())
    value = number_of<double>(key, text, "a number");
  else if (value.is_string())
    value = text;
  else
    refuse_override(
        fmt::format("{} is neither a number, a flag nor a text by default and cannot be replaced",
                    key),
        "Write a config.json and name it with --config_name.");
}

}  // namespace

nlohmann::json default_config(const std::string& model_type) {
  if (auto defaults = model_defaults(model_type)) {
    defaults->config["model_type"] = model_type;
    return std::move(defaults->config);
  }
  const auto known = model_types_with_defaults();
  throw Error("G-TASK-8", ErrorKind::usage,
              fmt::format("--model_type {} is not known; expected {}", model_type, join_or(known)),
              did_you_mean(model_type, known));
}

nlohmann::json with_overrides(nlohmann::json config, const std::string& overrides) {
  for (size_t begin = 0; begin <= overrides.size();) {
    const auto end = std::min(overrides.find(',', begin), overrides.size());
    set_override(config, overrides.substr(begin, end - begin));
    begin = end + 1;
  }
  return config;
}

int64_t max_positions(const nlohmann::json& config) {
  const auto find = [](const nlohmann::json& values) -> std::optional<int64_t> {
    for (const auto* name : {"max_position_embeddings", "n_positions"})
      if (const auto found = values.find(name); found != values.end() && found->is_number_integer())
        return found->get<int64_t>();
    return std::nullopt;
  };
  if (const auto positions = find(config)) return *positions;
  const auto defaults = model_defaults(config.value("model_type", ""));
  return defaults ? find(defaults->config).value_or(1024) : 1024;
}

}  // namespace gradus::tasks
