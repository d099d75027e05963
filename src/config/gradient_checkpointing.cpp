#include <fmt/format.h>
#include <gradus/config/gradient_checkpointing.h>
#include <gradus/core/error.h>

#include <nlohmann/json.hpp>
#include <set>

namespace gradus {
namespace {

// Arguments of torch.utils.checkpoint.checkpoint that leave the numbers as they are.
const std::set<std::string> kWithoutEffect = {"use_reentrant", "determinism_check", "debug",
                                              "early_stop", "respect_saved_tensors_hooks"};

[[noreturn]] void refuse_checkpointing(const std::string& what) {
  throw Error(
      "G-CONF-10", ErrorKind::usage, "gradient_checkpointing_kwargs: " + what,
      "Known are every_n_layers (1, 2, …), offload and preserve_rng_state (true or false), and "
      "use_reentrant, determinism_check, debug and early_stop, which change no numbers.");
}

bool truth_of(const std::string& key, const nlohmann::json& value) {
  if (!value.is_boolean())
    refuse_checkpointing(fmt::format("{} is {}; expected true or false", key, value.dump()));
  return value.get<bool>();
}

}  // namespace

GradientCheckpointing GradientCheckpointing::from_kwargs(const nlohmann::json& kwargs) {
  GradientCheckpointing how;
  if (kwargs.is_null()) return how;
  if (!kwargs.is_object())
    refuse_checkpointing(fmt::format("{} is not a dictionary", kwargs.dump()));
  for (const auto& [key, value] : kwargs.items()) {
    if (key == "every_n_layers") {
      if (!value.is_number_integer() || value.get<int64_t>() < 1)
        refuse_checkpointing(
            fmt::format("every_n_layers is {}; expected a whole number from 1", value.dump()));
      how.every_n_layers = value.get<int64_t>();
    } else if (key == "offload") {
      how.offload = truth_of(key, value);
    } else if (key == "preserve_rng_state") {
      how.preserve_rng_state = truth_of(key, value);
    } else if (!kWithoutEffect.contains(key)) {
      refuse_checkpointing(fmt::format("there is no {}", key));
    }
  }
  return how;
}

}  // namespace gradus
