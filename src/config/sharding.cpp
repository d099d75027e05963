#include "config/sharding.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/nearest.h>

#include <algorithm>
#include <sstream>

namespace gradus::config {
namespace {

using nlohmann::json;

const std::vector<std::string> kFsdpWords = {"full_shard",   "shard_grad_op",      "no_shard",
                                             "hybrid_shard", "hybrid_shard_zero2", "offload",
                                             "auto_wrap"};
const std::vector<std::string> kFsdpKeys = {"version",
                                            "reshard_after_forward",
                                            "cpu_offload",
                                            "activation_checkpointing",
                                            "cpu_ram_efficient_loading",
                                            "state_dict_type",
                                            "auto_wrap_policy",
                                            "transformer_layer_cls_to_wrap",
                                            "min_num_params",
                                            "forward_prefetch",
                                            "backward_prefetch",
                                            "use_orig_params",
                                            "sync_module_states",
                                            "limit_all_gathers",
                                            "xla",
                                            "xla_fsdp_v2",
                                            "xla_fsdp_settings",
                                            "xla_fsdp_grad_ckpt"};

[[noreturn]] void wrong_value(const std::string& key, const std::string& expected,
                              const json& received) {
  throw Error(
      "G-CONF-2", ErrorKind::usage,
      fmt::format("fsdp_config: {}: expected {}, received {}", key, expected, dump_json(received)));
}

[[noreturn]] void only_in_python(const std::string& what, const std::string& advice) {
  throw Error("G-CONF-5", ErrorKind::usage, what, advice);
}

// The dictionary of fsdp_config, or of the file that it names, without the prefix fsdp_ of keys.
json fsdp_dictionary(const json& given) {
  auto read = given;
  if (given.is_string()) {
    try {
      read = read_json(expand_user(given.get<std::string>()));
    } catch (const Error& error) {
      throw Error("G-CONF-6", ErrorKind::usage, "fsdp_config: " + error.message(),
                  "Give a dictionary as JSON, or the path of a JSON file.");
    }
  }
  if (read.is_null()) return json::object();
  if (!read.is_object())
    throw Error("G-CONF-2", ErrorKind::usage,
                "fsdp_config: expected a dictionary, received " + dump_json(read));
  auto keys = json::object();
  for (const auto& [key, value] : read.items()) {
    const auto name = key.starts_with("fsdp_") ? key.substr(5) : key;
    if (std::find(kFsdpKeys.begin(), kFsdpKeys.end(), name) == kFsdpKeys.end()) {
      const auto hint = did_you_mean(name, kFsdpKeys);
      throw Error(
          "G-CONF-1", ErrorKind::usage, "fsdp_config: unknown key " + key,
          fmt::format("{}Known are {}.", hint.empty() ? "" : hint + " ", join_or(kFsdpKeys)));
    }
    keys[name] = value;
  }
  return keys;
}

// A boolean, or its name as a text.
bool flag_of(const json& config, const std::string& key, bool otherwise) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return otherwise;
  if (found->is_boolean()) return found->get<bool>();
  const auto text = found->is_string() ? found->get<std::string>() : "";
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  wrong_value(key, "true or false", *found);
}

std::string word_of(const json& config, const std::string& key,
                    const std::vector<std::string>& words) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return words.front();
  auto text = found->is_string() ? found->get<std::string>() : "";
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return char(std::toupper(c)); });
  if (std::find(words.begin(), words.end(), text) == words.end())
    wrong_value(key, join_or(words), *found);
  return text;
}

int stage_of_word(const std::string& word) {
  if (word == "full_shard") return 3;
  if (word == "shard_grad_op") return 2;
  if (word == "no_shard") return 0;
  only_in_python("fsdp: " + word +
                     " shards within each machine and copies between them; gradus "
                     "shards over all processes",
                 "Use full_shard or shard_grad_op.");
}

// What the words of --fsdp say, before fsdp_config.
int stage_of_words(const std::string& fsdp) {
  if (fsdp == "true" || fsdp == "True") return 3;
  std::istringstream words(fsdp);
  int stage = 3;
  for (std::string word; words >> word;) {
    std::erase(word, ',');
    if (std::find(kFsdpWords.begin(), kFsdpWords.end(), word) == kFsdpWords.end())
      throw Error("G-CONF-2", ErrorKind::usage,
                  fmt::format("fsdp: expected {}, received \"{}\"", join_or(kFsdpWords), word),
                  did_you_mean(word, kFsdpWords));
    if (word != "offload" && word != "auto_wrap") stage = stage_of_word(word);
  }
  return stage;
}

// reshard_after_forward: a flag; for version 1 the name of a strategy.
int stage_of_config(const json& config, int stage) {
  const auto found = config.find("reshard_after_forward");
  if (found == config.end() || found->is_null()) return stage;
  if (found->is_string() && std::find(kFsdpWords.begin(), kFsdpWords.end() - 2,
                                      found->get<std::string>()) != kFsdpWords.end() - 2)
    return stage_of_word(found->get<std::string>());
  return flag_of(config, "reshard_after_forward", true) ? 3 : 2;
}

void refuse_python_keys(const json& config) {
  for (const char* key : {"xla", "xla_fsdp_v2", "xla_fsdp_grad_ckpt"})
    if (flag_of(config, key, false))
      only_in_python(fmt::format("fsdp_config: {}: gradus does not run on XLA", key),
                     "Leave it out.");
  if (flag_of(config, "cpu_ram_efficient_loading", false))
    only_in_python(
        "fsdp_config: cpu_ram_efficient_loading: every process maps the files of the model itself",
        "Leave it out.");
  if (const auto version = config.value("version", json(2)); version != 1 && version != 2)
    wrong_value("version", "1 or 2", version);
}

}  // namespace

Sharding sharding_of(const TrainingArguments& args) {
  Sharding found;
  const bool has_fsdp = args.fsdp && !args.fsdp->empty() && *args.fsdp != "false";
  const auto config = fsdp_dictionary(args.fsdp_config);
  refuse_python_keys(config);
  if (has_fsdp) found.stage = stage_of_config(config, stage_of_words(*args.fsdp));
  if (has_fsdp && args.zero_stage != 0 && args.zero_stage != found.stage)
    throw Error(
        "G-CONF-4", ErrorKind::usage,
        fmt::format("zero_stage is {}, but fsdp asks for stage {}", args.zero_stage, found.stage),
        "Give one of the two.");
  if (!has_fsdp) found.stage = int(args.zero_stage);
  const auto policy =
      word_of(config, "auto_wrap_policy", {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"});
  const auto least = config.value("min_num_params", json(0));
  if (!least.is_number_integer() || least < 0)
    wrong_value("min_num_params", "an integer of at least 0", least);
  found.min_num_params = least.get<int64_t>();
  if (policy == "NO_WRAP") found.wrap = Sharding::Wrap::none;
  if (policy == "SIZE_BASED_WRAP") found.wrap = Sharding::Wrap::by_size;
  // transformers writes whole checkpoints unless asked; --zero_stage is ours.
  const std::vector<std::string> forms =
      has_fsdp ? std::vector<std::string>{"FULL_STATE_DICT", "SHARDED_STATE_DICT"}
               : std::vector<std::string>{"SHARDED_STATE_DICT", "FULL_STATE_DICT"};
  found.offload = flag_of(config, "cpu_offload", false) ||
                  (has_fsdp && args.fsdp->find("offload") != std::string::npos);
  found.sharded_checkpoints = word_of(config, "state_dict_type", forms) == "SHARDED_STATE_DICT";
  return found;
}

void resolve_sharding(TrainingArguments& args) {
  const auto found = sharding_of(args);
  if (args.fsdp_config.is_null()) return;
  args.fsdp_config = fsdp_dictionary(args.fsdp_config);
  if (found.stage > 0 && flag_of(args.fsdp_config, "activation_checkpointing", false)) {
    if (args.gradient_checkpointing)
      throw Error("G-CONF-4", ErrorKind::usage,
                  "activation_checkpointing of fsdp_config and gradient_checkpointing are both set",
                  "They are the same here: give one of the two.");
    args.gradient_checkpointing = true;
  }
}

}  // namespace gradus::config
