#pragma once

#include <gradus/tasks/task.h>
#include <gradus/trainers/registry.h>

#include <optional>
#include <string>

#include "tasks/text_data.h"

namespace gradus::tasks {

/// trl's flags for the splits of a data set.
struct SplitFlags {
  std::string dataset_train_split = "train";
  std::string dataset_test_split = "test";
  std::optional<std::string> dataset_config = std::nullopt;
  bool dataset_streaming = false;
};

/// trl's flags for a base model in 4 bits (QLoRA).
struct QuantizationFlags {
  bool load_in_4bit = false;
  std::string bnb_4bit_quant_type = "nf4";
  bool use_bnb_nested_quant = false;
  std::optional<std::string> bnb_4bit_quant_storage = std::nullopt;
  bool load_in_8bit = false;
};

/// trl's further flags of a model.
struct TrlModelFlags {
  std::optional<std::string> attn_implementation = std::nullopt;
  std::optional<std::vector<std::string>> lora_target_parameters = std::nullopt;
  bool ignore_bias_buffers = false;
};

/// A task of trl's scripts: model, adapter and data by flags, all else in the trainer.
///
/// A task derives from it and makes its trainer.
class TrlTask : public Task {
 public:
  void add_options(OptionSet& options) override;
  void check(const TrainingArguments& args) const override;
  PreparedTask prepare(const TrainingArguments& args) override;

 protected:
  /// `changes` replace keys of the model's configuration.
  explicit TrlTask(ModelTask model, nlohmann::json changes = nullptr);
  /// The trainer, from the options that `prepare` has filled.
  virtual std::unique_ptr<Trainer> make(TrainerOptions options,
                                        std::optional<LoraConfig> adapter) = 0;

 private:
  ModelTask model_task_;
  nlohmann::json changes_;
  ModelFlags model_;
  FreshModelFlags fresh_;
  DataFlags data_;
  SplitFlags splits_;
  QuantizationFlags quantization_;
  TrlModelFlags further_;
};

/// The whole of a task whose `TrainerClass` needs nothing beside its options.
template <class TrainerClass, class Options>
class PlainTrlTask : public TrlTask {
 public:
  /// `name` is what --task calls it, `trainer` the name in the table of trainers.
  PlainTrlTask(std::string name, std::string trainer, ModelTask model,
               nlohmann::json changes = nullptr)
      : TrlTask(model, std::move(changes)), name_(std::move(name)), trainer_(std::move(trainer)) {}

  std::string name() const override { return name_; }
  std::string trainer() const override { return trainer_; }

 protected:
  std::unique_ptr<Trainer> make(TrainerOptions options,
                                std::optional<LoraConfig> adapter) override {
    auto own =
        with_arguments<Options>(options, arguments().template as<typename Options::Arguments>());
    own.peft_config = std::move(adapter);
    return std::make_unique<TrainerClass>(std::move(own));
  }

 private:
  std::string name_, trainer_;
};

}  // namespace gradus::tasks
