#include <gradus/core/error.h>
#include <gradus/optim/torch_optimizer.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <sstream>

#include "optim/saved_options.h"

namespace gradus {
namespace {

torch::optim::Optimizer& checked(const std::shared_ptr<torch::optim::Optimizer>& wrapped) {
  if (wrapped == nullptr)
    throw Error("G-OPTIM-1", ErrorKind::usage, "an optimizer was expected, received null");
  return *wrapped;
}

std::vector<ParamGroupInit> groups_of(torch::optim::Optimizer& wrapped) {
  std::vector<ParamGroupInit> groups;
  for (auto& group : wrapped.param_groups())
    groups.push_back({.params = group.params(), .lr = group.options().get_lr()});
  return groups;
}

}  // namespace

TorchOptimizer::TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> wrapped)
    : Optimizer(groups_of(checked(wrapped)), checked(wrapped).defaults().get_lr(), 0.0),
      wrapped_(std::move(wrapped)) {}

void TorchOptimizer::step(const StepContext& context) {
  if (context.found_inf && context.found_inf->item<double>() != 0) return;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (context.grad_scale)
      for (const auto& param : groups_[g].params)
        if (param.grad().defined()) param.grad().div_(*context.grad_scale);
    if (context.clip_coef)
      for (const auto& param : groups_[g].params)
        if (param.grad().defined()) param.grad().mul_(*context.clip_coef);
    wrapped_->param_groups()[g].options().set_lr(groups_[g].lr);
  }
  wrapped_->step();
}

StateTree TorchOptimizer::state_dict() const {
  torch::serialize::OutputArchive archive;
  wrapped_->save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  auto state = Optimizer::state_dict();
  return state.set("torch_optim", StateTree::Bytes{stream.str()});
}

void TorchOptimizer::load_state_dict(const StateTree& state) {
  const auto* saved = state.find("torch_optim");
  if (saved == nullptr)
    throw Error(
        "G-OPTIM-3", ErrorKind::checkpoint,
        "cannot load the optimizer's state: it was not written by a torch::optim optimizer",
        "Resume with the optimizer that the checkpoint was made with, or use save_only_model.");
  Optimizer::load_state_dict(state);
  std::istringstream stream(saved->as_string());
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  wrapped_->load(archive);
}

}  // namespace gradus
