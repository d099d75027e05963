#include "focal_trainer.h"

#include <torch/torch.h>

namespace {

constexpr gradus::OptionRow<FocalArguments> kFocalRows[] = {
    {&FocalArguments::focal_gamma, "focal_gamma", gradus::Group::trainer, gradus::at_least(0),
     "How much less easy examples count; 0 is cross entropy.", gradus::Origin::gradus},
    {&FocalArguments::focal_cap, "focal_cap", gradus::Group::trainer, gradus::above(0),
     "The highest loss of an example; no limit when not set.", gradus::Origin::gradus},
};

}  // namespace

std::span<const gradus::OptionRow<FocalArguments>> FocalArguments::own_options() {
  return kFocalRows;
}

FocalTrainer::FocalTrainer(FocalTrainerOptions options)
    : Trainer(options), focal_(gradus::resolve_arguments(options.args)) {}

gradus::Loss FocalTrainer::compute_loss(gradus::Model& model, gradus::Batch inputs,
                                        std::optional<torch::Tensor>) {
  const auto labels = inputs.pop("labels");  // the model then computes no loss of its own
  auto outputs = model.forward(inputs);
  const auto right = outputs["logits"].log_softmax(-1).gather(1, labels.unsqueeze(1)).squeeze(1);
  auto losses = -(1 - right.exp()).pow(focal_.focal_gamma) * right;
  if (focal_.focal_cap) losses = losses.clamp_max(*focal_.focal_cap);
  return {.loss = losses.mean(), .outputs = outputs};
}

// So that checkpoints keep the two, and a resume notices when they are changed.
nlohmann::ordered_json FocalTrainer::arguments_to_save() const {
  auto all = gradus::arguments_to_dict(focal_);
  const auto common = Trainer::arguments_to_save();  // may have changed since
  for (const auto& [name, value] : common.items()) all[name] = value;
  return all;
}
