#include <gradus/optim/factory.h>
#include <gradus/optim/galore_adamw_8bit.h>

#include "optim/bitsandbytes_layout.h"
#include "optim/gradient_projector.h"
#include "optim/saved_options.h"
#include "optim/target_groups.h"

namespace gradus {
namespace {

// After the six slots of BnbAdamW.
constexpr size_t kLeft8bit = 6, kRight8bit = 7;

// transformers spares embeddings only in optimizers of bitsandbytes itself.
std::vector<ParamGroupInit> without_roles(std::vector<ParamGroupInit> groups) {
  for (auto& group : groups) group.roles.clear();
  return groups;
}

}  // namespace

std::shared_ptr<Optimizer> GaLoreAdamW8bit::from_arguments(std::vector<ParamGroupInit> groups,
                                                           const OptimizerArguments& args,
                                                           const OptimArgs& extra) {
  ProjectionOptions projection;
  read_projection(extra, projection);
  return std::make_shared<GaLoreAdamW8bit>(groups, args.target_modules, args.learning_rate,
                                           projection, extra.optimizer().ends_with("layerwise"));
}

GaLoreAdamW8bit::GaLoreAdamW8bit(const std::vector<ParamGroupInit>& groups,
                                 const std::optional<TargetModules>& targets, double lr,
                                 ProjectionOptions projection, bool is_layerwise)
    : BnbAdamW(without_roles(target_groups(groups, targets, "galore_adamw_8bit")),
               {.lr = lr,
                .states = BnbStates::named(is_layerwise ? "galore_adamw_8bit_layerwise"
                                                        : "galore_adamw_8bit")}),
      projection_(std::move(projection)),
      projector_(std::make_unique<GradientProjector>(projection_, GradientProjector::Source::svd,
                                                     "galore_adamw_8bit")),
      is_layerwise_(is_layerwise) {}

GaLoreAdamW8bit::~GaLoreAdamW8bit() = default;

// AdamW's step from zero with projected gradients is the projected update.
void GaLoreAdamW8bit::update(Bucket& bucket, const StepContext& context) {
  if (bucket.group != kTargetGroup) return BnbAdamW::update(bucket, context);
  auto& group = groups_[bucket.group];
  Bucket low = bucket;
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    const auto left = slot_or_none(bucket.slots, kLeft8bit, i),
               right = slot_or_none(bucket.slots, kRight8bit, i);
    if (projector_->is_due(bucket.step)) projector_->fit(bucket.grads[i], left, right);
    low.grads[i] = project(bucket.grads[i], left, right);
    low.params[i] = torch::zeros_like(low.grads[i]);
  }
  const double decay = std::exchange(group.weight_decay, 0.0);
  BnbAdamW::update(low, context);
  group.weight_decay = decay;
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    const auto& param = bucket.params[i];
    param.add_(project_back(low.params[i], slot_or_none(bucket.slots, kLeft8bit, i),
                            slot_or_none(bucket.slots, kRight8bit, i))
                   .mul_(projection_.scale));
    if (decay > 0) param.add_(param, -group.lr * decay);
  }
}

torch::Tensor GaLoreAdamW8bit::state_space_of(const torch::Tensor& param, size_t group) const {
  return group == kTargetGroup
             ? torch::empty(projector_->projected_sizes(param.sizes()), param.options())
             : param;
}

std::vector<std::string> GaLoreAdamW8bit::slot_names() const {
  auto names = BnbAdamW::slot_names();
  names.insert(names.end(), {"ortho_left", "ortho_right"});
  return names;
}

std::vector<torch::Tensor> GaLoreAdamW8bit::make_slots(const torch::Tensor& param,
                                                       size_t group) const {
  auto slots = BnbAdamW::make_slots(state_space_of(param, group), group);
  if (group == kTargetGroup)
    std::tie(slots[kLeft8bit], slots[kRight8bit]) = projector_->make_bases(param);
  return slots;
}

Optimizer::ParamState GaLoreAdamW8bit::read_param_entry(const StateTree& entry,
                                                        const torch::Tensor& param, size_t group,
                                                        const std::string& what) const {
  auto state = BnbAdamW::read_param_entry(entry, state_space_of(param, group), group, what);
  if (group != kTargetGroup) return state;
  std::tie(state.slots[kLeft8bit], state.slots[kRight8bit]) = projector_->make_bases(param);
  const auto saved = bitsandbytes::flat(entry);
  for (const size_t k : {kLeft8bit, kRight8bit}) {
    const auto name = slot_names()[k];
    if (state.slots[k].defined())
      copy_slot(state.slots[k], saved.at(name).as_tensor(), what + ", '" + name + "'");
  }
  return state;
}

StateTree GaLoreAdamW8bit::group_options(size_t group) const {
  auto options = StateTree::dict();
  if (group == kTargetGroup) {
    options.set("rank", projection_.rank);
    set_projection(options, projection_);
  }
  const auto plain = BnbAdamW::group_options(group);
  for (const auto& [key, value] : plain.entries()) {
    if (key == StateTree::Key("alpha")) options.set("weight_decay", groups_[group].weight_decay);
    options.set(key, value);
  }
  return options;
}

void GaLoreAdamW8bit::load_group_options(size_t group, const StateTree& saved) {
  BnbAdamW::load_group_options(group, saved);
  if (group != kTargetGroup) return;
  take_projection(saved, projection_);
  projector_ =
      std::make_unique<GradientProjector>(projection_, GradientProjector::Source::svd, name());
}

}  // namespace gradus
