#pragma once

#include <gradus/core/state_tree.h>

/// bitsandbytes writes a parameter's tensors one level deeper than torch, beside the plain step
/// count.
namespace gradus::bitsandbytes {

inline constexpr const char* kTensors = "__bnb_optimizer_quant_state__";

inline StateTree nested(const StateTree& flat) {
  auto outer = StateTree::dict(), inner = StateTree::dict();
  for (const auto& [key, value] : flat.entries())
    (value.is_tensor() ? inner : outer).set(key, value);
  return outer.set(kTensors, std::move(inner));
}

/// Also takes entries of older versions, which are flat already.
inline StateTree flat(const StateTree& entry) {
  auto result = StateTree::dict();
  for (const auto& [key, value] : entry.entries()) {
    if (key == StateTree::Key(kTensors)) {
      for (const auto& [inner_key, inner_value] : value.entries())
        result.set(inner_key, inner_value);
    } else {
      result.set(key, value);
    }
  }
  return result;
}

}  // namespace gradus::bitsandbytes
