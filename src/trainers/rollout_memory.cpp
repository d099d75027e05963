#include "trainers/rollout_memory.h"
#include "core/parsed_json.h"

#include <fmt/format.h>
#include <gradus/core/log.h>

#include <cstring>

namespace gradus {
namespace {

// Parts share memory with the batch they were cut from; a file must not hold all of it.
StateTree saved_parts(const std::vector<Batch>& parts) {
  auto saved = StateTree::list();
  for (const auto& part : parts) {
    auto tensors = StateTree::dict();
    for (const auto& [name, value] : part) tensors.set(name, value.detach().clone());
    saved.push(std::move(tensors));
  }
  return saved;
}

std::vector<Batch> loaded_parts(const StateTree& saved) {
  std::vector<Batch> parts;
  for (const auto& part : saved.items()) {
    Batch batch;
    for (const auto& [name, value] : part.entries())
      batch.set(std::get<std::string>(name), value.as_tensor());
    parts.push_back(std::move(batch));
  }
  return parts;
}

/// `saved_parts` of every process, by rank. They have the same names and types everywhere, but rows
/// of other lengths.
StateTree parts_of_all(const std::vector<Batch>& parts, ProcessGroup& group) {
  auto shapes = nlohmann::json::array();
  std::string numbers;
  for (const auto& part : parts)
    for (const auto& [name, value] : part) {
      const auto here = value.detach().cpu().contiguous();
      shapes.push_back(here.sizes().vec());
      numbers.append(static_cast<const char*>(here.const_data_ptr()), here.nbytes());
    }
  const auto all_shapes = group.gather_bytes(shapes.dump());
  const auto all_numbers = group.gather_bytes(numbers);
  auto of_all = StateTree::list();
  for (size_t rank = 0; rank < all_numbers.size(); ++rank) {
    const auto sizes = strict_json(all_shapes[rank]);
    auto saved = StateTree::list();
    size_t place = 0, read = 0;
    for (const auto& part : parts) {
      auto tensors = StateTree::dict();
      for (const auto& [name, value] : part) {
        auto theirs = torch::empty(sizes.at(place++).get<std::vector<int64_t>>(),
                                   value.options().device(torch::kCPU).requires_grad(false));
        std::memcpy(theirs.mutable_data_ptr(), all_numbers[rank].data() + read, theirs.nbytes());
        read += theirs.nbytes();
        tensors.set(name, std::move(theirs));
      }
      saved.push(std::move(tensors));
    }
    of_all.push(std::move(saved));
  }
  return of_all;
}

}  // namespace

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
  auto rewards = StateTree::dict();
  for (const auto& [name, value] : last_rewards) rewards.set(name, value);
  auto of_all = StateTree::list();
  if (!group_) of_all.push(saved_parts(parts));
  return StateTree::dict()
      .set("step", step)
      .set("last_rewards", std::move(rewards))
      .set("has_new_tokens", has_new_tokens[1])
      .set("parts", group_ ? of_all_ : std::move(of_all))
      .set("own", own_state ? own_state() : StateTree());
}

void RolloutMemory::gather_state() { of_all_ = parts_of_all(parts, *group_); }

void RolloutMemory::load_tensor_state(const StateTree& state) {
  step = state.at("step").as_int();
  has_new_tokens = {false, state.at("has_new_tokens").as_bool()};
  last_rewards.clear();
  for (const auto& [name, value] : state.at("last_rewards").entries())
    last_rewards[std::get<std::string>(name)] = value.as_double();
  parts.clear();
  const auto& of_all = state.at("parts").items();
  if (int64_t(of_all.size()) == (group_ ? group_->size() : 1)) {
    parts = loaded_parts(of_all[size_t(group_ ? group_->rank() : 0)]);
  } else {
    log_warning(fmt::format(
        "The checkpoint has the completions of {} processes, and there are {} now: new completions "
        "are made.",
        of_all.size(), group_ ? group_->size() : 1));
    step = 0;
  }
  if (load_own_state && !state.at("own").is_none()) load_own_state(state.at("own"));
  restored_ = true;
}

nlohmann::json RolloutMemory::state_dict() const {
  auto rows = table_.state();
  return rows.empty() ? nlohmann::json(nullptr) : rows;
}

void RolloutMemory::load_state_dict(const nlohmann::json& state) { table_.load(state); }

}  // namespace gradus
