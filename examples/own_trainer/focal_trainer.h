#pragma once

#include <gradus/trainers/registry.h>

/// Where the focal loss differs from the defaults of `TrainingArguments`.
struct FocalDefaults : gradus::TrainingDefaults {
  static double learning_rate() { return 0.05; }
  static std::string save_strategy() { return "no"; }
};

/// The arguments of `FocalTrainer`: every option of `TrainingArguments`, then its own.
struct FocalArguments {
#define GRADUS_DEFAULTS FocalDefaults
#include <gradus/config/training_arguments_fields.inc>

  double focal_gamma = 2.0;              ///< how much less easy examples count; 0: cross entropy
  std::optional<double> focal_cap = {};  ///< the highest loss of an example; unset: none

  /// The table of these two.
  static std::span<const gradus::OptionRow<FocalArguments>> own_options();
  operator gradus::TrainingArguments() const { return gradus::common_arguments(*this); }
};

using FocalTrainerOptions = gradus::TrainerOptionsWith<FocalArguments>;

/// Trains classifiers with the focal loss (Lin et al. 2017), which looks away from easy examples.
class FocalTrainer : public gradus::Trainer {
 public:
  explicit FocalTrainer(FocalTrainerOptions options);

 protected:
  gradus::Loss compute_loss(gradus::Model& model, gradus::Batch inputs,
                            std::optional<torch::Tensor> num_items_in_batch) override;
  nlohmann::ordered_json arguments_to_save() const override;

 private:
  FocalArguments focal_;
};
