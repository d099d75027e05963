#pragma once

#include <gradus/train/callback.h>

#include <optional>

namespace gradus {

using Callbacks = std::vector<std::shared_ptr<TrainerCallback>>;

/// What trainer_state.json holds of callbacks: transformers' form, one state or a list of them
/// under each name, and that of `control`.
nlohmann::json exported_callback_states(const Callbacks& callbacks, const TrainerControl& control);
/// Restores the states of a checkpoint that Python wrote.
void load_exported_callback_states(const Callbacks& callbacks, const nlohmann::json& states);

/// Lets callbacks that hold something else in every process (`SharedState`) exchange it. All
/// processes call it before the first one asks for states to save.
void gather_callback_states(const Callbacks& callbacks);

/// What gradus_state.json holds of callbacks: name and state of every one that has a state.
nlohmann::json callback_states(const Callbacks& callbacks);
/// Hands each saved state to the next callback of its name; warns of names that are gone. What a
/// callback was made with (its "args") comes back only `with_args`. Throws `Error` G-CKPT-5 when a
/// callback cannot take its state.
void load_callback_states(const Callbacks& callbacks, const nlohmann::json& states, bool with_args);

/// The callbacks' tensors, which optimizer.pt holds beside the optimizer's; none when there are
/// none.
std::optional<StateTree> callback_tensors(const Callbacks& callbacks);
void load_callback_tensors(const Callbacks& callbacks, const StateTree& tensors);

}  // namespace gradus
