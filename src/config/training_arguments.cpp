#include <fmt/format.h>
#include <gradus/config/launch_environment.h>
#include <gradus/config/trainer_arguments.h>
#include <gradus/core/byte_size.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>

#include <cctype>
#include <cstdlib>
#include <map>

#include "config/python_text.h"

namespace gradus {
namespace {

LogLevel level_named(const std::string& name) {
  if (name == "detail" || name == "debug") return LogLevel::debug;
  if (name == "info") return LogLevel::info;
  if (name == "warning") return LogLevel::warning;
  if (name == "error") return LogLevel::error;
  if (name == "critical") return LogLevel::critical;
  return log_level();
}

}  // namespace

std::string TrainingArguments::mixed_precision() const {
  if (fp16) return "fp16";
  if (bf16) return "bf16";
  const char* environment = std::getenv("ACCELERATE_MIXED_PRECISION");
  return environment != nullptr && *environment != '\0' ? environment : "no";
}

int64_t TrainingArguments::max_shard_bytes() const {
  if (const auto bytes = parse_byte_size(max_shard_size)) return static_cast<int64_t>(*bytes);
  throw Error("G-CONF-3", ErrorKind::usage,
              fmt::format("max_shard_size: must be a size, received \"{}\"", max_shard_size),
              "Give a number and a unit, such as 500MB, 2GiB or 50GB.");
}

int64_t TrainingArguments::world_size() const { return launch_environment().world_size; }
int64_t TrainingArguments::process_index() const { return launch_environment().rank; }
int64_t TrainingArguments::local_process_index() const { return launch_environment().local_rank; }
bool TrainingArguments::should_log() const {
  return (log_on_each_node ? local_process_index() : process_index()) == 0;
}
bool TrainingArguments::should_save() const {
  return (save_on_each_node ? local_process_index() : process_index()) == 0;
}
LogLevel TrainingArguments::get_process_log_level() const {
  return level_named(should_log() ? log_level : log_level_replica);
}

nlohmann::ordered_json TrainingArguments::to_dict() const { return arguments_to_dict(*this); }
std::string TrainingArguments::to_json_string() const { return dump_json(to_dict(), 2); }

nlohmann::ordered_json TrainingArguments::to_sanitized_dict() const {
  auto dict = to_dict();
  dict["train_batch_size"] = train_batch_size();
  dict["eval_batch_size"] = eval_batch_size();
  for (const auto& item : dict.items())
    if (item.value().is_null() || item.value().is_structured())
      item.value() = config::python_str(item.value());
  return dict;
}

std::string TrainingArguments::to_string() const {
  std::map<std::string, std::string> lines;
  const auto dict = to_dict();
  for (const auto& item : dict.items()) lines[item.key()] = config::python_str(item.value());
  std::string text = "TrainingArguments(\n";
  for (const auto& [name, value] : lines) text += name + "=" + value + ",\n";
  return text + ")";
}

TrainingArguments TrainingArguments::from_json(const nlohmann::json& dict) {
  return arguments_from_json<TrainingArguments>(dict);
}

}  // namespace gradus
