#include "trainers/reference_policy.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/device/runtime.h>
#include <gradus/models/auto_model.h>

#include <unordered_set>

namespace gradus {
namespace {

constexpr const char* kReferenceAdapter = "ref";

[[noreturn]] void refuse_reference(const std::string& message, const std::string& advice) {
  throw Error("G-TRL-1", ErrorKind::usage, message, advice);
}

/// Uses another adapter while it lives.
class OtherAdapter {
 public:
  OtherAdapter(PeftModel& model, const std::string& name)
      : model_(model), before_(model.active_adapter()) {
    model_.set_adapter(name);
  }
  ~OtherAdapter() { model_.set_adapter(before_); }
  OtherAdapter(const OtherAdapter&) = delete;
  OtherAdapter& operator=(const OtherAdapter&) = delete;

 private:
  PeftModel& model_;
  std::string before_;
};

/// Whether the model's first parameter is of this type.
bool has_type(const Model& model, torch::ScalarType type) {
  const auto parameters = model.parameters();
  return !parameters.empty() && parameters.front().scalar_type() == type;
}

std::shared_ptr<Model> frozen(std::shared_ptr<Model> model) {
  for (auto& parameter : model->parameters()) parameter.requires_grad_(false);
  model->eval();
  return model;
}

}  // namespace

ReferencePolicy ReferencePolicy::itself(const std::shared_ptr<Model>& model, bool adapter_is_new) {
  ReferencePolicy policy;
  policy.model_ = model;
  // Adapters can be turned off.
  policy.adapted_ = std::dynamic_pointer_cast<PeftModel>(model);
  if (policy.adapted_ && !adapter_is_new && !policy.adapted_->has_adapter(kReferenceAdapter))
    policy.adapted_->copy_adapter(policy.adapted_->active_adapter(), kReferenceAdapter);
  return policy;
}

ReferencePolicy ReferencePolicy::of(const std::shared_ptr<Model>& model,
                                    const std::shared_ptr<Model>& given, bool adapter_is_new,
                                    const std::string& who) {
  if (given && given == model)
    refuse_reference(
        fmt::format("{}: ref_model is the model that is trained, so it would change with it", who),
        "Leave ref_model out: the trainer keeps a copy of the model as it is now.");
  // A model with an adapter has its base inside.
  if (!given && std::dynamic_pointer_cast<PeftModel>(model)) return itself(model, adapter_is_new);
  ReferencePolicy policy;
  if (given) {
    policy.model_ = frozen(given);
    return policy;
  }
  // Models of users have no table that could make another one.
  const auto source = std::dynamic_pointer_cast<PreTrainedModel>(model);
  if (!source)
    refuse_reference(fmt::format("{} can only copy models of the library to have a reference", who),
                     "Give ref_model, a second object with the weights of the model.");
  policy.model_ = frozen(copy_of_model(ModelTask::causal_lm, *source));
  policy.is_copy_ = true;
  return policy;
}

ModelOutput ReferencePolicy::forward(const Batch& inputs, const Model& trained,
                                     const ForwardOptions& options) const {
  const torch::NoGradGuard no_grad;
  if (!adapted_) {
    bool is_wider = has_type(*model_, torch::kFloat) && has_type(trained, torch::kBFloat16);
    if (is_wider && is_copy_ && !stays_float32_) {
      for (auto& parameter : model_->parameters())
        parameter.set_data(parameter.to(torch::kBFloat16));
      is_wider = false;
    }
    // Weights that others have or change stay float32.
    const device::AutocastGuard precision(model_->parameters().front().device().type(),
                                          is_wider ? torch::kBFloat16 : torch::kFloat);
    return model_->forward(inputs, options);
  }
  if (adapted_->has_adapter(kReferenceAdapter)) {
    const OtherAdapter reference(*adapted_, kReferenceAdapter);
    return adapted_->forward(inputs, options);
  }
  const auto base = adapted_->disable_adapter();
  return adapted_->forward(inputs, options);
}

TokenScores ReferencePolicy::score(const Batch& inputs, const torch::Tensor& labels,
                                   const Model& trained, double temperature) const {
  const torch::NoGradGuard no_grad;
  ForwardOptions options;
  options.need_logits = false;
  options.token_scoring = TokenScoring{.labels = labels, .temperature = temperature};
  return token_scores_in(forward(inputs, trained, options), labels, {.temperature = temperature});
}

ReferencePolicy reference_to_use(const std::shared_ptr<Model>& model,
                                 const std::shared_ptr<Model>& given, const ReferenceUse& use,
                                 const std::string& who) {
  auto policy = use.asked_once && !given
                    ? ReferencePolicy::itself(model, use.adapter_is_new)
                    : ReferencePolicy::of(model, given, use.adapter_is_new, who);
  if (use.is_synced) policy.keep_float32();
  if (use.is_synced && !policy.own_model())
    refuse_reference(
        "sync_ref_model needs a reference of its own, which a model with an adapter does not have",
        "Give ref_model, or leave sync_ref_model out.");
  return policy;
}

void SyncRefModelCallback::on_step_end(const TrainingArguments&, TrainerState& state,
                                       TrainerControl&, const CallbackContext& at) {
  if (state.global_step % steps_ != 0) return;
  const torch::NoGradGuard no_grad;
  const auto from = at.model->parameters();
  const auto to = reference_->parameters();
  std::unordered_set<const void*> moved;  // a tied tensor comes twice
  for (size_t i = 0; i < to.size(); ++i)
    if (moved.insert(to[i].unsafeGetTensorImpl()).second)
      to[i].mul_(1.0 - alpha_).add_(from[i].to(to[i].options()), alpha_);
}

StateTree SyncRefModelCallback::tensor_state() const {
  auto tree = StateTree::list();
  for (const auto& parameter : reference_->parameters()) tree.push(parameter.detach());
  return tree;
}

void SyncRefModelCallback::load_tensor_state(const StateTree& state) {
  const torch::NoGradGuard no_grad;
  const auto parameters = reference_->parameters();
  if (state.items().size() != parameters.size())
    throw Error("G-CKPT-5", ErrorKind::checkpoint,
                fmt::format("the checkpoint has {} tensors of the reference model, which has {}",
                            state.items().size(), parameters.size()),
                "Resume with the model that the run was started with.");
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(state.items()[i].as_tensor());
}

}  // namespace gradus
