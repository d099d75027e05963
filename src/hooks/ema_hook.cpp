#include <gradus/core/error.h>
#include <gradus/hooks/ema_hook.h>
#include <gradus/hooks/trainer.h>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <fmt/format.h>

#include <unordered_set>

namespace gradus::hooks {

EMAHook::EMAHook(double decay) : decay_(decay) {
  ord = 20;
  if (!(decay >= 0 && decay <= 1))
    throw Error("G-HOOK-1", ErrorKind::usage,
                fmt::format("EMAHook: decay: expected a number from 0 to 1, received {}", decay),
                "0.999 and 0.9999 are common.");
}

void EMAHook::before_fit(Trainer& trainer) {
  const torch::NoGradGuard no_grad;
  parameters_.clear();
  average_.clear();
  std::unordered_set<const void*> seen;  // tied parameters count once
  const auto restored = std::exchange(restored_, std::nullopt);
  for (const auto& item : trainer.model().named_parameters()) {
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    parameters_.emplace_back(item.key(), item.value());
    average_.push_back(item.value().detach().clone());
    if (!restored) continue;
    const auto& saved = restored->at(item.key()).as_tensor();
    if (saved.sizes() != item.value().sizes())
      throw Error(
          "G-HOOK-10", ErrorKind::checkpoint,
          fmt::format("the saved average of {} has another shape than the model's parameter",
                      item.key()),
          "Resume with the model that was trained.");
    average_.back().copy_(saved);
  }
  averaged_samples_ = trainer.step_state().samples_seen;
  if (restored && restored_behind_) update(trainer);
  trainer.at_end_of_fit([this] {
    if (swapped_) swap();
  });
}

void EMAHook::after_step(Trainer& trainer) {
  if (trainer.training()) update(trainer);
}

bool EMAHook::is_behind(const Trainer& trainer) const {
  return trainer.step_state().samples_seen != averaged_samples_;
}

void EMAHook::update(const Trainer& trainer) {
  averaged_samples_ = trainer.step_state().samples_seen;
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> values;
  for (size_t i = 0; i < average_.size(); ++i) {
    values.push_back(parameters_[i].second.detach());
    if (average_[i].device() != values[i].device())
      average_[i] = average_[i].to(values[i].device());
  }
  if (values.empty()) return;
  at::_foreach_mul_(average_, decay_);
  at::_foreach_add_(average_, values, 1 - decay_);
}

void EMAHook::swap() {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < average_.size(); ++i) {
    auto& parameter = parameters_[i].second;
    const auto own = parameter.detach();  // keeps the storage that the parameter gives up
    parameter.set_data(average_[i].to(own.device()));
    average_[i] = own;
  }
  swapped_ = !swapped_;
}

void EMAHook::before_valid(Trainer&) {
  if (!swapped_) swap();
}

void EMAHook::after_epoch(Trainer&) {
  if (swapped_) swap();
}

}  // namespace gradus::hooks
