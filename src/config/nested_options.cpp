#include "config/nested_options.h"

#include <fmt/format.h>
#include <gradus/config/gradient_checkpointing.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/nearest.h>

#include <span>

namespace gradus::config {
namespace {

using nlohmann::json;

enum class KeyType { flag, optional_flag, positive_integer, optional_dictionary };

struct Key {
  const char* name;
  KeyType type;
};

constexpr Key kAcceleratorKeys[] = {
    {"split_batches", KeyType::flag},
    {"dispatch_batches", KeyType::optional_flag},
    {"even_batches", KeyType::flag},
    {"use_seedable_sampler", KeyType::flag},
    {"non_blocking", KeyType::flag},
    {"gradient_accumulation_kwargs", KeyType::optional_dictionary},
    {"use_configured_state", KeyType::flag},
};

constexpr Key kAccumulationKeys[] = {
    {"num_steps", KeyType::positive_integer},
    {"adjust_scheduler", KeyType::flag},
    {"sync_with_dataloader", KeyType::flag},
    {"sync_each_batch", KeyType::flag},
};

/// What `value` should be, when it is not of `type`; empty when it is.
std::string expected_instead(KeyType type, const json& value) {
  switch (type) {
    case KeyType::flag: return value.is_boolean() ? "" : "true or false";
    case KeyType::optional_flag:
      return value.is_boolean() || value.is_null() ? "" : "true or false";
    case KeyType::positive_integer:
      return value.is_number_integer() && value >= 1 ? "" : "a positive integer";
    case KeyType::optional_dictionary:
      return value.is_object() || value.is_null() ? "" : "a dictionary";
  }
  return "";
}

void check_keys(const json& given, std::span<const Key> keys, const std::string& where) {
  std::vector<std::string> names;
  for (const auto& key : keys) names.emplace_back(key.name);
  for (const auto& [name, value] : given.items()) {
    const auto key = std::find(names.begin(), names.end(), name);
    if (key == names.end()) {
      const auto hint = did_you_mean(name, names);
      throw Error("G-CONF-1", ErrorKind::usage, fmt::format("{}: unknown key {}", where, name),
                  fmt::format("{}Known are {}.", hint.empty() ? "" : hint + " ", join_or(names)));
    }
    const auto type = keys[static_cast<size_t>(key - names.begin())].type;
    if (const auto expected = expected_instead(type, value); !expected.empty())
      throw Error(
          "G-CONF-2", ErrorKind::usage,
          fmt::format("{}: {}: expected {}, received {}", where, name, expected, dump_json(value)));
  }
}

/// The dictionary itself, or that of the JSON file whose path was given.
json accelerator_dictionary(const json& given, std::string& where) {
  if (!given.is_string()) return given;
  where += " (" + given.get<std::string>() + ")";
  try {
    return read_json(expand_user(given.get<std::string>()));
  } catch (const Error& error) {
    throw Error("G-CONF-6", ErrorKind::usage, "accelerator_config: " + error.message(),
                "Give a dictionary as JSON, or the path of a JSON file.");
  }
}

void take_accumulation(TrainingArguments& args, const json& kwargs, const std::string& where) {
  if (kwargs.is_null()) return;
  check_keys(kwargs, kAccumulationKeys, where + ": gradient_accumulation_kwargs");
  if (!kwargs.contains("num_steps")) return;
  const auto steps = kwargs["num_steps"].get<int64_t>();
  if (args.gradient_accumulation_steps != 1 && args.gradient_accumulation_steps != steps)
    throw Error(
        "G-CONF-4", ErrorKind::usage,
        fmt::format("gradient_accumulation_steps is {}, but accelerator_config says num_steps {}",
                    args.gradient_accumulation_steps, steps),
        "Give one of the two.");
  args.gradient_accumulation_steps = steps;
}

void resolve_accelerator(TrainingArguments& args) {
  json all = {{"split_batches", false},       {"dispatch_batches", nullptr},
              {"even_batches", true},         {"use_seedable_sampler", true},
              {"non_blocking", false},        {"gradient_accumulation_kwargs", nullptr},
              {"use_configured_state", false}};
  std::string where = "accelerator_config";
  const auto given = accelerator_dictionary(args.accelerator_config, where);
  if (!given.is_null() && !given.is_object())
    throw Error("G-CONF-2", ErrorKind::usage,
                where + ": expected a dictionary, received " + dump_json(given));
  if (given.is_object()) {
    check_keys(given, kAcceleratorKeys, where);
    all.update(given);
  }
  take_accumulation(args, all["gradient_accumulation_kwargs"], where);
  if (all["use_configured_state"] == true)
    throw Error("G-CONF-5", ErrorKind::usage,
                where + ": use_configured_state needs an Accelerator made in Python",
                "Leave it out.");
  all.erase("use_configured_state");  // as transformers does once it has been read
  args.accelerator_config = std::move(all);
}

}  // namespace

void resolve_nested_options(TrainingArguments& args) {
  resolve_accelerator(args);
  GradientCheckpointing::from_kwargs(args.gradient_checkpointing_kwargs);
}

}  // namespace gradus::config
