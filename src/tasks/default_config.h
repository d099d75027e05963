#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gradus::tasks {

/// The configuration transformers starts from for a model type: every key with its default.
/// Throws `Error` G-TASK-8 (usage) with the known types.
nlohmann::json default_config(const std::string& model_type);

/// `config` with "key=value,key=value" put in, each value read as the type of the one before. Keys
/// may have transformers' general names
/// ("hidden_size" for GPT-2's "n_embd"). Throws G-TASK-8 (usage) for a key that is not there and a
/// value of another type.
nlohmann::json with_overrides(nlohmann::json config, const std::string& overrides);

/// The longest input a configuration allows (`max_position_embeddings` under any of its names);
/// 1024 where it says nothing.
int64_t max_positions(const nlohmann::json& config);

}  // namespace gradus::tasks
