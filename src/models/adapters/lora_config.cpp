#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/models/lora_config.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace gradus {

using nlohmann::json;

namespace {

constexpr const char* kPeftVersion = "0.21.2";

json text_or_null(const std::optional<std::string>& text) {
  return text ? json(*text) : json(nullptr);
}

json names_or_null(const StringOrList& names) {
  if (names.words().empty()) return nullptr;
  return names.is_single() ? json(names.words()[0]) : json(names.words());
}

json as_number(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? json(int64_t(value)) : json(value);
}

[[noreturn]] void throw_bad_value(const std::string& where, const std::string& what,
                                  const std::string& advice = "Correct the value.") {
  throw Error("G-PEFT-1", ErrorKind::model, fmt::format("{}: {}", where, what), advice);
}

/// Reads the keys of an adapter_config.json, each into its field; a null keeps the default.
class LoraReader {
 public:
  LoraReader(const json& values, const std::string& where) : values_(values), where_(where) {
    if (!values.is_object()) throw_bad_value(where, "must be a JSON object");
  }

  const json* find(const char* name) const {
    const auto found = values_.find(name);
    return found == values_.end() || found->is_null() ? nullptr : &*found;
  }
  template <class T>
  void read(const char* name, T& field) const {
    if (const auto* value = find(name)) set(name, *value, field);
  }

 private:
  [[noreturn]] void fail(const char* name, const char* expected, const json& value) const {
    throw_bad_value(where_, fmt::format("{} must be {}, received {}", name, expected,
                                        dump_json(value).substr(0, 80)));
  }
  void set(const char* name, const json& value, bool& field) const {
    if (!value.is_boolean()) fail(name, "true or false", value);
    field = value.get<bool>();
  }
  void set(const char* name, const json& value, int64_t& field) const {
    if (!value.is_number_integer()) fail(name, "a whole number", value);
    field = value.get<int64_t>();
  }
  void set(const char* name, const json& value, double& field) const {
    if (!value.is_number()) fail(name, "a number", value);
    field = value.get<double>();
  }
  void set(const char* name, const json& value, std::string& field) const {
    if (!value.is_string()) fail(name, "a text", value);
    field = value.get<std::string>();
  }
  void set(const char* name, const json& value, std::optional<std::string>& field) const {
    set(name, value, field.emplace());
  }
  void set(const char* name, const json& value, std::vector<std::string>& field) const {
    if (!value.is_array()) fail(name, "a list of names", value);
    field.clear();
    for (const auto& each : value) set(name, each, field.emplace_back());
  }
  void set(const char* name, const json& value, StringOrList& field) const {
    if (value.is_string()) {
      field = value.get<std::string>();
      return;
    }
    std::vector<std::string> words;
    set(name, value, words);
    field = words;
  }
  void set(const char* name, const json& value, std::vector<int64_t>& field) const {
    field.clear();
    if (value.is_array())
      for (const auto& each : value) set(name, each, field.emplace_back());
    else
      set(name, value, field.emplace_back());
  }
  template <class T>
  void set(const char* name, const json& value,
           std::vector<std::pair<std::string, T>>& field) const {
    if (!value.is_object()) fail(name, "an object", value);
    field.clear();
    for (const auto& [key, each] : value.items())
      set(name, each, field.emplace_back(key, T{}).second);
  }

  const json& values_;
  const std::string& where_;
};

/// Features of peft that change what an adapter computes and that gradus does not have.
constexpr const char* kUnsupported[] = {
    "alora_invocation_tokens", "arrow_config",    "kasa_config",
    "layer_replication",       "megatron_config", "monteclora_config",
    "target_parameters",       "use_bdlora",      "velora_config",
    "trainable_token_indices", "use_qalora",      "ensure_weight_tying"};

bool is_set(const json& value) {
  return !value.is_null() && value != json(false) && !value.empty();
}

}  // namespace

json LoraConfig::to_json() const {
  json values = {{"alora_invocation_tokens", nullptr},
                 {"arrow_config", nullptr},
                 {"auto_mapping", nullptr},
                 {"corda_config", nullptr},
                 {"ensure_weight_tying", false},
                 {"eva_config", nullptr},
                 {"kasa_config", nullptr},
                 {"layer_replication", nullptr},
                 {"loftq_config", json::object()},
                 {"lora_ga_config", nullptr},
                 {"megatron_config", nullptr},
                 {"megatron_core", "megatron.core"},
                 {"monteclora_config", nullptr},
                 {"peft_type", "LORA"},
                 {"peft_version", kPeftVersion},
                 {"qalora_group_size", 16},
                 {"target_parameters", nullptr},
                 {"trainable_token_indices", nullptr},
                 {"use_bdlora", nullptr},
                 {"use_qalora", false},
                 {"velora_config", nullptr}};
  values["r"] = r;
  values["target_modules"] = names_or_null(target_modules);
  values["exclude_modules"] = names_or_null(exclude_modules);
  values["lora_alpha"] = as_number(lora_alpha);
  values["lora_dropout"] = lora_dropout;
  values["fan_in_fan_out"] = fan_in_fan_out;
  values["bias"] = bias;
  values["use_rslora"] = use_rslora;
  values["modules_to_save"] = modules_to_save.empty() ? json(nullptr) : json(modules_to_save);
  values["init_lora_weights"] = init_lora_weights == "true" || init_lora_weights == "false"
                                    ? json(init_lora_weights == "true")
                                    : json(init_lora_weights);
  values["layers_to_transform"] =
      layers_to_transform.empty() ? json(nullptr) : json(layers_to_transform);
  values["layers_pattern"] = names_or_null(layers_pattern);
  auto& ranks = values["rank_pattern"] = json::object();
  for (const auto& [name, rank] : rank_pattern) ranks[name] = rank;
  auto& alphas = values["alpha_pattern"] = json::object();
  for (const auto& [name, alpha] : alpha_pattern) alphas[name] = as_number(alpha);
  values["use_dora"] = use_dora;
  values["lora_bias"] = lora_bias;
  values["task_type"] = text_or_null(task_type);
  values["base_model_name_or_path"] = text_or_null(base_model_name_or_path);
  values["revision"] = text_or_null(revision);
  values["inference_mode"] = inference_mode;
  return values;
}

LoraConfig LoraConfig::from_json(const json& values, const std::string& where) {
  const LoraReader reader(values, where);
  const auto* type = reader.find("peft_type");
  if (type != nullptr && *type != json("LORA"))
    throw_bad_value(where, fmt::format("peft_type is {}; gradus has LORA only", dump_json(*type)),
                    "Use a LoRA adapter, or merge this one into its model with peft.");
  for (const auto* name : kUnsupported)
    if (const auto* value = reader.find(name); value != nullptr && is_set(*value))
      throw_bad_value(where, fmt::format("{} is set, which gradus does not support", name),
                      "Merge the adapter into its model with peft and load the merged model.");
  LoraConfig config;
  reader.read("r", config.r);
  reader.read("target_modules", config.target_modules);
  reader.read("exclude_modules", config.exclude_modules);
  reader.read("lora_alpha", config.lora_alpha);
  reader.read("lora_dropout", config.lora_dropout);
  reader.read("fan_in_fan_out", config.fan_in_fan_out);
  reader.read("bias", config.bias);
  reader.read("use_rslora", config.use_rslora);
  reader.read("modules_to_save", config.modules_to_save);
  if (const auto* init = reader.find("init_lora_weights"); init != nullptr && init->is_boolean())
    config.init_lora_weights = init->get<bool>() ? "true" : "false";
  else
    reader.read("init_lora_weights", config.init_lora_weights);
  reader.read("layers_to_transform", config.layers_to_transform);
  reader.read("layers_pattern", config.layers_pattern);
  reader.read("rank_pattern", config.rank_pattern);
  reader.read("alpha_pattern", config.alpha_pattern);
  reader.read("use_dora", config.use_dora);
  reader.read("lora_bias", config.lora_bias);
  reader.read("task_type", config.task_type);
  reader.read("base_model_name_or_path", config.base_model_name_or_path);
  reader.read("revision", config.revision);
  reader.read("inference_mode", config.inference_mode);
  return config;
}

LoraConfig LoraConfig::from_pretrained(const std::filesystem::path& directory) {
  const auto file = directory / "adapter_config.json";
  return from_json(read_json(file), file.string());
}

void LoraConfig::save_pretrained(const std::filesystem::path& directory) const {
  write_file_atomically(directory / "adapter_config.json", dump_json(to_json(), 2));
}

void LoraConfig::check() const {
  const std::string where = "LoraConfig";
  const auto check_rank = [&](const std::string& name, int64_t rank) {
    if (rank < 1)
      throw_bad_value(where, fmt::format("{} must be at least 1, received {}", name, rank));
  };
  check_rank("r", r);
  for (const auto& [name, rank] : rank_pattern) check_rank("rank_pattern[" + name + "]", rank);
  if (!(lora_dropout >= 0.0 && lora_dropout < 1.0))
    throw_bad_value(where, fmt::format("lora_dropout must be at least 0 and below 1, received {}",
                                       lora_dropout));
  if (bias != "none" && bias != "all" && bias != "lora_only")
    throw_bad_value(where, fmt::format("bias must be none, all or lora_only, received {}", bias));
  if (init_lora_weights != "true" && init_lora_weights != "false" &&
      init_lora_weights != "gaussian" && init_lora_weights != "pissa")
    throw_bad_value(
        where, fmt::format("init_lora_weights must be true, false, gaussian or pissa, received {}",
                           init_lora_weights));
  constexpr std::string_view kTasks[] = {"SEQ_CLS",   "SEQ_2_SEQ_LM", "CAUSAL_LM",
                                         "TOKEN_CLS", "QUESTION_ANS", "FEATURE_EXTRACTION"};
  if (task_type && std::ranges::find(kTasks, *task_type) == std::end(kTasks))
    throw_bad_value(where, fmt::format("task_type must be one of {}, received {}",
                                       fmt::join(kTasks, ", "), *task_type));
  if (use_dora && lora_bias) throw_bad_value(where, "lora_bias cannot be used with use_dora");
  if (!layers_to_transform.empty() && target_modules.is_single())
    throw_bad_value(where, "layers_to_transform needs target_modules as a list of names");
}

}  // namespace gradus
