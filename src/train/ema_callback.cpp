#include <gradus/core/error.h>
#include <gradus/models/model.h>
#include <gradus/train/callbacks.h>

#include <ATen/ops/_foreach_lerp.h>

namespace gradus {

EmaCallback::EmaCallback(double decay) : decay_(decay) {
  if (!(decay >= 0 && decay < 1))
    throw Error("G-TRAIN-3", ErrorKind::usage,
                "EmaCallback: expected a decay in [0, 1), received " + std::to_string(decay),
                "Common values are 0.999 and 0.9999.");
}

void EmaCallback::on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                                 const CallbackContext& at) {
  const torch::NoGradGuard no_grad;
  parameters_.clear();
  for (const auto& [name, parameter] : trainable_parameters(at.model->named_module()))
    parameters_.push_back(parameter.detach());
  if (std::exchange(restored_, false) && average_.size() == parameters_.size()) {
    for (size_t i = 0; i < average_.size(); ++i)
      average_[i] = average_[i].to(parameters_[i].device());
    return;
  }
  average_.clear();
  for (const auto& parameter : parameters_) average_.push_back(parameter.clone());
}

void EmaCallback::on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                              const CallbackContext&) {
  const torch::NoGradGuard no_grad;
  at::_foreach_lerp_(average_, parameters_, 1 - decay_);
}

void EmaCallback::swap(Model& model) {
  const torch::NoGradGuard no_grad;
  const auto parameters = trainable_parameters(model.named_module());
  if (parameters.size() != average_.size())
    throw Error("G-TRAIN-3", ErrorKind::usage,
                "EmaCallback::swap: the model has " + std::to_string(parameters.size()) +
                    " trained tensors, the average " + std::to_string(average_.size()),
                "The average is made by train(): swap it with the model that was trained.");
  size_t i = 0;
  for (const auto& [name, parameter] : parameters) {
    const auto kept = parameter.detach().clone();
    parameter.detach().copy_(average_.at(i));
    average_.at(i++).copy_(kept);
  }
}

StateTree EmaCallback::tensor_state() const {
  auto tree = StateTree::list();
  for (const auto& tensor : average_) tree.push(tensor);
  return tree;
}

void EmaCallback::load_tensor_state(const StateTree& state) {
  average_.clear();
  for (const auto& item : state.items()) average_.push_back(item.as_tensor().clone());
  restored_ = true;
}

}  // namespace gradus
