#include "trainers/rollout_arguments.h"

namespace gradus {

std::vector<double> checked_weights(const std::vector<Reward>& rewards,
                                    const std::optional<std::vector<double>>& weights,
                                    const std::string& trainer) {
  if (rewards.empty())
    refuse_options(trainer + " has no reward",
                   "Set `reward_funcs`, --reward_funcs, "
                   "--reward_model_name_or_path or --reward_command.");
  if (weights && weights->size() != rewards.size())
    refuse_options(
        fmt::format("there are {} reward_weights for {} rewards", weights->size(), rewards.size()),
        "Give one weight for each reward.");
  return weights ? *weights : std::vector<double>(rewards.size(), 1.0);
}

std::shared_ptr<ReferencePolicy> reference_for(double beta, const std::shared_ptr<Model>& model,
                                               const std::shared_ptr<Model>& given,
                                               bool adapter_is_new, const std::string& trainer) {
  if (beta == 0) return nullptr;
  return std::make_shared<ReferencePolicy>(
      ReferencePolicy::of(model, given, adapter_is_new, trainer));
}

CallbackHandle syncing_callback(ReferencePolicy& reference, double mixup_alpha, int64_t sync_steps,
                                const std::string& trainer) {
  if (!reference.own_model())
    refuse_options(trainer +
                       ": sync_ref_model does not go with an adapter, whose reference is the "
                       "model below it",
                   "Leave sync_ref_model out, or train the whole model.");
  reference.keep_float32();
  return std::make_shared<SyncRefModelCallback>(reference.own_model(), mixup_alpha, sync_steps);
}

}  // namespace gradus
