#include <fmt/format.h>
#include <gradus/config/gradient_checkpointing.h>
#include <gradus/config/training_arguments.h>
#include <gradus/core/error.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

namespace gradus {
namespace {

// What the input of a block, which stays, is of all that the block keeps; less in most models.
constexpr double kInputShare = 1.0 / 12;

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

// The fewest blocks of which nothing but the input is kept, so that the rest is inside the budget.
int64_t recomputed_for(double budget, int64_t blocks) {
  const double wanted = (1 - budget) * double(blocks) / (1 - kInputShare);
  return std::min(blocks, int64_t(std::ceil(wanted - 1e-9)));
}

}  // namespace

std::optional<GradientCheckpointing> GradientCheckpointing::of(const TrainingArguments& args) {
  const auto& budget = args.activation_memory_budget;
  if (budget ? *budget == 1 : !args.gradient_checkpointing) return std::nullopt;
  auto how = from_kwargs(args.gradient_checkpointing_kwargs);
  how.memory_budget = budget.value_or(0);
  return how;
}

bool GradientCheckpointing::recomputes(int64_t index, int64_t blocks) const {
  if (memory_budget > 0) return index < recomputed_for(memory_budget, blocks);
  return index % every_n_layers == 0;
}

int64_t GradientCheckpointing::recomputed(int64_t blocks) const {
  return memory_budget > 0 ? recomputed_for(memory_budget, blocks)
                           : (blocks + every_n_layers - 1) / every_n_layers;
}

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
