#pragma once

#include <torch/types.h>

#include <nlohmann/json_fwd.hpp>

namespace gradus::data {

/// Lists of lists of numbers as a tensor: int64, float32 when a float is among them, bool when all
/// are. Throws G-DATA-7 when lengths differ and G-DATA-2 for text, null and structs.
torch::Tensor nested_tensor(const nlohmann::ordered_json& value);

}  // namespace gradus::data
