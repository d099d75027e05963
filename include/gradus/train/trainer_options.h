#pragma once

#include <gradus/config/training_arguments.h>
#include <gradus/data/data_loader.h>
#include <gradus/models/model.h>
#include <gradus/train/callback.h>
#include <gradus/train/evaluation.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gradus {

class LRScheduler;
class Optimizer;
struct ParamGroupInit;
struct TokenizerLike;

/// One data set to evaluate on, several with names (metrics `eval_<name>_…`), or none.
class EvalDatasets {
 public:
  using Named = std::vector<std::pair<std::string, DatasetRef>>;

  EvalDatasets() = default;
  EvalDatasets(std::nullptr_t) {}
  EvalDatasets(DatasetRef dataset) : single_(std::move(dataset)) {}
  template <class T>
    requires std::is_constructible_v<DatasetRef, std::shared_ptr<T>>
  EvalDatasets(std::shared_ptr<T> dataset) : single_(std::move(dataset)) {}
  EvalDatasets(Named datasets) : named_(std::move(datasets)) {}
  EvalDatasets(std::initializer_list<Named::value_type> datasets) : named_(datasets) {}

  explicit operator bool() const { return single_ || !named_.empty(); }
  bool is_named() const { return !named_.empty(); }
  const DatasetRef& single() const { return single_; }
  const Named& named() const { return named_; }

 private:
  DatasetRef single_;
  Named named_;
};

/// `(outputs, labels or undefined, num_items_in_batch) -> loss`
using ComputeLossFunction = std::function<torch::Tensor(const ModelOutput&, const torch::Tensor&,
                                                        const std::optional<torch::Tensor>&)>;
/// Makes an optimizer for the two parameter groups (decay, no decay).
using OptimizerFactory = std::function<std::shared_ptr<Optimizer>(std::vector<ParamGroupInit>,
                                                                  const TrainingArguments&)>;

struct Optimizers {
  std::shared_ptr<Optimizer> optimizer = nullptr;
  std::shared_ptr<LRScheduler> lr_scheduler = nullptr;
};

/// The constructor's 13 parameters, by name. `Arguments`: TrainingArguments, or the wider ones of a
/// trainer that adds to them.
template <class Arguments>
struct TrainerOptionsWith {
  std::shared_ptr<Model> model = nullptr;  ///< exactly one of `model` and `model_init`
  Arguments args = {};
  DataCollator data_collator = nullptr;  ///< default: padding with a tokenizer, else stacking
  DatasetRef train_dataset = nullptr;
  EvalDatasets eval_dataset = nullptr;
  std::shared_ptr<TokenizerLike> processing_class = nullptr;  ///< saved with the model
  std::function<std::shared_ptr<Model>()> model_init =
      nullptr;  ///< called after seeding, now and at every train()
  ComputeLossFunction compute_loss_func = nullptr;
  ComputeMetrics compute_metrics = nullptr;
  std::vector<CallbackHandle> callbacks = {};
  Optimizers optimizers = {};
  OptimizerFactory optimizer_factory = nullptr;
  PreprocessLogits preprocess_logits_for_metrics = nullptr;

  /// The same for a plain Trainer.
  operator TrainerOptionsWith<TrainingArguments>() const  // NOLINT: meant to convert
    requires(!std::is_same_v<Arguments, TrainingArguments>)
  {
    return {model,
            TrainingArguments(args),
            data_collator,
            train_dataset,
            eval_dataset,
            processing_class,
            model_init,
            compute_loss_func,
            compute_metrics,
            callbacks,
            optimizers,
            optimizer_factory,
            preprocess_logits_for_metrics};
  }
};

using TrainerOptions = TrainerOptionsWith<TrainingArguments>;

}  // namespace gradus
