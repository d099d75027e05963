#pragma once

#include <gradus/config/string_or_list.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gradus {

/// What a LoRA adapter looks like: the fields of peft's `LoraConfig`, with its names and defaults.
///
/// An adapted layer computes W x + s · B A x. Only A (r, in) and B (out, r) are trained; W is
/// frozen. Thread-safety: a plain value.
struct LoraConfig {
  int64_t r = 8;  ///< Rank of the adapter.
  /// The layers to adapt. A list holds full names or ends of names ("q_proj"). A single string is a
  /// regular expression for the whole name, or "all-linear": every linear layer but the output
  /// head. Empty: the layers that peft chooses for the model type.
  StringOrList target_modules = {};
  StringOrList exclude_modules = {};  ///< Layers that stay as they are; read as `target_modules`.
  double lora_alpha = 8;              ///< The scaling s is lora_alpha / r.
  double lora_dropout = 0.0;          ///< Dropout of the adapter's input in training.
  bool fan_in_fan_out =
      false;                  ///< Whether weights are (in, out). Set by itself for GPT-2's layers.
  std::string bias = "none";  ///< Biases to train: "none", "all" or "lora_only".
  bool use_rslora = false;    ///< s is lora_alpha / sqrt(r).
  /// Modules that are trained as a whole and saved with the adapter, such as a new head.
  std::vector<std::string> modules_to_save = {};
  /// How A and B start. "true": A as torch's Linear, B zero. "gaussian": A normal with deviation
  /// 1 / r, B zero. "false": both as torch's Linear. "pissa": the largest singular values of W,
  /// which leave W.
  std::string init_lora_weights = "true";
  std::vector<int64_t> layers_to_transform = {};  ///< Numbers of the blocks to adapt; empty: all.
  StringOrList layers_pattern = {};  ///< Name of the list of blocks ("layers"); empty: any.
  /// Other ranks for some layers: name, end of a name or regular expression, and rank.
  std::vector<std::pair<std::string, int64_t>> rank_pattern = {};
  /// The same for lora_alpha.
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  bool use_dora = false;   ///< Trains the length of each output's weights apart from the direction.
  bool lora_bias = false;  ///< Whether B has a bias.
  std::optional<std::string> task_type = std::nullopt;  ///< "CAUSAL_LM", "SEQ_CLS" and so on.
  std::optional<std::string> base_model_name_or_path = std::nullopt;  ///< Where W comes from.
  std::optional<std::string> revision = std::nullopt;                 ///< Its revision.
  bool inference_mode = false;  ///< Whether the adapter is frozen, too.

  /// The content of adapter_config.json, with every key that peft writes.
  nlohmann::json to_json() const;
  /// Reads the content of an adapter_config.json. Throws `Error` G-PEFT-1 for another kind of
  /// adapter, for a value of the wrong type and for a feature that is not supported; the message
  /// begins with `where`.
  static LoraConfig from_json(const nlohmann::json& values,
                              const std::string& where = "adapter_config.json");
  /// Reads adapter_config.json in `directory`. Throws `Error` G-IO-1 and as `from_json`.
  static LoraConfig from_pretrained(const std::filesystem::path& directory);
  /// Writes adapter_config.json to `directory`, which exists.
  void save_pretrained(const std::filesystem::path& directory) const;
  /// Throws `Error` G-PEFT-1 for a value outside its range.
  void check() const;

  friend bool operator==(const LoraConfig&, const LoraConfig&) = default;
};

}  // namespace gradus
