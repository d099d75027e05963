#include <gradus/optim/factory.h>
#include <gradus/optim/galore_adafactor.h>

#include "optim/gradient_projector.h"
#include "optim/saved_options.h"
#include "optim/target_groups.h"

namespace gradus {
namespace {

// After the five slots of Adafactor.
constexpr size_t kLeftSlot = 5, kRightSlot = 6;

}  // namespace

std::shared_ptr<Optimizer> GaLoreAdafactor::from_arguments(std::vector<ParamGroupInit> groups,
                                                           const OptimizerArguments& args,
                                                           const OptimArgs& extra) {
  ProjectionOptions projection;
  read_projection(extra, projection);
  return std::make_shared<GaLoreAdafactor>(groups, args.target_modules, args.learning_rate,
                                           projection, extra.optimizer().ends_with("layerwise"));
}

GaLoreAdafactor::GaLoreAdafactor(const std::vector<ParamGroupInit>& groups,
                                 const std::optional<TargetModules>& targets, double lr,
                                 ProjectionOptions projection, bool is_layerwise)
    : Adafactor(target_groups(groups, targets, "galore_adafactor"),
                {.lr = lr, .scale_parameter = false, .relative_step = false}),
      projection_(std::move(projection)),
      projector_(std::make_unique<GradientProjector>(projection_, GradientProjector::Source::svd,
                                                     "galore_adafactor")),
      is_layerwise_(is_layerwise) {}

GaLoreAdafactor::~GaLoreAdafactor() = default;

torch::Tensor GaLoreAdafactor::in_state_space(Bucket& bucket, size_t i, const torch::Tensor& grad) {
  if (bucket.group != kTargetGroup) return grad;
  const auto left = slot_or_none(bucket.slots, kLeftSlot, i),
             right = slot_or_none(bucket.slots, kRightSlot, i);
  if (projector_->is_due(bucket.step)) projector_->fit(grad, left, right);
  return project(grad, left, right);
}

torch::Tensor GaLoreAdafactor::in_parameter_space(Bucket& bucket, size_t i,
                                                  const torch::Tensor& update) {
  if (bucket.group != kTargetGroup) return update;
  return project_back(update, slot_or_none(bucket.slots, kLeftSlot, i),
                      slot_or_none(bucket.slots, kRightSlot, i))
      .mul_(projection_.scale);
}

std::vector<std::string> GaLoreAdafactor::slot_names() const {
  auto names = Adafactor::slot_names();
  names.insert(names.end(), {"ortho_left", "ortho_right"});
  return names;
}

std::vector<torch::Tensor> GaLoreAdafactor::make_slots(const torch::Tensor& param,
                                                       size_t group) const {
  const bool is_target = group == kTargetGroup;
  auto slots = Adafactor::make_slots(
      is_target ? torch::empty(projector_->projected_sizes(param.sizes()), param.options()) : param,
      group);
  auto [left, right] = is_target ? projector_->make_bases(param.to(slots.back().scalar_type()))
                                 : std::pair<torch::Tensor, torch::Tensor>();
  slots.push_back(std::move(left));
  slots.push_back(std::move(right));
  return slots;
}

StateTree GaLoreAdafactor::group_options(size_t group) const {
  auto options = StateTree::dict();
  if (group == kTargetGroup) {
    options.set("rank", projection_.rank);
    set_projection(options, projection_);
  }
  const auto plain = Adafactor::group_options(group);
  for (const auto& [key, value] : plain.entries()) {
    if (key == StateTree::Key("scale_parameter"))
      options.set("weight_decay", groups_[group].weight_decay);
    options.set(key, value);
  }
  return options;
}

void GaLoreAdafactor::load_group_options(size_t group, const StateTree& saved) {
  Adafactor::load_group_options(group, saved);
  if (group != kTargetGroup) return;
  take_projection(saved, projection_);
  projector_ =
      std::make_unique<GradientProjector>(projection_, GradientProjector::Source::svd, name());
}

}  // namespace gradus
