#include "train/saved_callbacks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>

#include "train/shared_state.h"

namespace gradus {
namespace {

using nlohmann::json;
using NamedStates = std::vector<std::pair<std::string, json>>;

void load_named_states(const Callbacks& callbacks, NamedStates states, bool with_args) {
  std::vector<bool> used(callbacks.size(), false);
  std::vector<std::string> missing;
  for (auto& [name, state] : states) {
    size_t i = 0;
    while (i < callbacks.size() && (used[i] || callbacks[i]->name() != name)) ++i;
    if (i == callbacks.size()) {
      missing.push_back(name);
      continue;
    }
    used[i] = true;
    if (!with_args && callbacks[i]->is_exportable() && state.is_object())
      state["args"] = json::object();
    try {
      callbacks[i]->load_state_dict(state);
    } catch (const json::exception& error) {
      throw Error("G-CKPT-5", ErrorKind::checkpoint,
                  "the saved state of callback " + name + " cannot be restored: " + error.what(),
                  "The callback's state_dict has changed since the checkpoint was written.");
    }
  }
  if (!missing.empty())
    log_warning(fmt::format(
        "The checkpoint has states of callbacks that this run does not have; they are ignored: {}.",
        fmt::join(missing, ", ")));
}

}  // namespace

json exported_callback_states(const Callbacks& callbacks, const TrainerControl& control) {
  json states = json::object();
  for (const auto& callback : callbacks) {
    if (!callback->is_exportable()) continue;
    auto& slot = states[callback->name()];
    if (slot.is_null())
      slot = callback->state_dict();
    else if (slot.is_array())
      slot.push_back(callback->state_dict());
    else
      slot = json::array({slot, callback->state_dict()});
  }
  states["TrainerControl"] = control.state();
  return states;
}

void load_exported_callback_states(const Callbacks& callbacks, const json& states) {
  NamedStates named;
  for (const auto& [name, value] : states.items()) {
    if (name == "TrainerControl") continue;
    if (!value.is_array())
      named.emplace_back(name, value);
    else
      for (const auto& item : value) named.emplace_back(name, item);
  }
  load_named_states(callbacks, std::move(named), /*with_args=*/true);
}

void gather_callback_states(const Callbacks& callbacks) {
  for (const auto& callback : callbacks)
    // Few callbacks hold something else in every process.
    if (auto* shared = dynamic_cast<SharedState*>(callback.get())) shared->gather_state();
}

json callback_states(const Callbacks& callbacks) {
  json states = json::array();
  for (const auto& callback : callbacks)
    if (auto state = callback->state_dict(); !state.is_null())
      states.push_back({{"name", callback->name()}, {"state", std::move(state)}});
  return states;
}

void load_callback_states(const Callbacks& callbacks, const json& states, bool with_args) {
  NamedStates named;
  for (const auto& item : states) named.emplace_back(item.at("name"), item.at("state"));
  load_named_states(callbacks, std::move(named), with_args);
}

std::optional<StateTree> callback_tensors(const Callbacks& callbacks) {
  auto tensors = StateTree::list();
  for (const auto& callback : callbacks)
    if (auto tree = callback->tensor_state(); !tree.is_none())
      tensors.push(StateTree::dict().set("name", callback->name()).set("state", std::move(tree)));
  return tensors.items().empty() ? std::nullopt : std::optional(std::move(tensors));
}

void load_callback_tensors(const Callbacks& callbacks, const StateTree& tensors) {
  std::vector<bool> used(callbacks.size(), false);
  for (const auto& item : tensors.items())
    for (size_t i = 0; i < callbacks.size(); ++i)
      if (!used[i] && callbacks[i]->name() == item.at("name").as_string()) {
        callbacks[i]->load_tensor_state(item.at("state"));
        used[i] = true;
        break;
      }
}

}  // namespace gradus
