#include "trainers/rollout_memory.h"

namespace gradus {

void RolloutMemory::on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                                   const CallbackContext&) {
  if (std::exchange(restored_, false)) return;
  step = 0;
  parts.clear();
  has_new_tokens = {};
  last_rewards.clear();
  table_.clear();
}

StateTree RolloutMemory::tensor_state() const {
  if (!is_saved_) return {};
  auto saved = StateTree::list();
  for (const auto& part : parts) {
    auto tensors = StateTree::dict();
    // Parts share memory with the batch they were cut from; a file must not hold all of it.
    for (const auto& [name, value] : part) tensors.set(name, value.detach().clone());
    saved.push(std::move(tensors));
  }
  auto rewards = StateTree::dict();
  for (const auto& [name, value] : last_rewards) rewards.set(name, value);
  return StateTree::dict()
      .set("step", step)
      .set("last_rewards", std::move(rewards))
      .set("has_new_tokens", has_new_tokens[1])
      .set("parts", std::move(saved))
      .set("own", own_state ? own_state() : StateTree());
}

void RolloutMemory::load_tensor_state(const StateTree& state) {
  if (!is_saved_) return;
  step = state.at("step").as_int();
  has_new_tokens = {false, state.at("has_new_tokens").as_bool()};
  last_rewards.clear();
  for (const auto& [name, value] : state.at("last_rewards").entries())
    last_rewards[std::get<std::string>(name)] = value.as_double();
  parts.clear();
  for (const auto& part : state.at("parts").items()) {
    Batch batch;
    for (const auto& [name, value] : part.entries())
      batch.set(std::get<std::string>(name), value.as_tensor());
    parts.push_back(std::move(batch));
  }
  if (load_own_state && !state.at("own").is_none()) load_own_state(state.at("own"));
  restored_ = true;
}

nlohmann::json RolloutMemory::state_dict() const {
  auto rows = is_saved_ ? table_.state() : nlohmann::json::array();
  return rows.empty() ? nlohmann::json(nullptr) : rows;
}

void RolloutMemory::load_state_dict(const nlohmann::json& state) {
  if (is_saved_) table_.load(state);
}

}  // namespace gradus
