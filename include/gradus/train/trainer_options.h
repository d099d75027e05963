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

/// The data to evaluate on: one data set, several with names, or none.
///
///     .eval_dataset = {{"easy", a}, {"hard", b}}  // metrics eval_easy_loss, eval_hard_loss, …
class EvalDatasets {
 public:
  /// Names and data sets.
  using Named = std::vector<std::pair<std::string, DatasetRef>>;

  EvalDatasets() = default;        ///< None.
  EvalDatasets(std::nullptr_t) {}  ///< None.
  /// One data set.
  EvalDatasets(DatasetRef dataset) : single_(std::move(dataset)) {}
  /// One data set.
  template <class T>
    requires std::is_constructible_v<DatasetRef, std::shared_ptr<T>>
  EvalDatasets(std::shared_ptr<T> dataset) : single_(std::move(dataset)) {}
  /// Several data sets with names.
  EvalDatasets(Named datasets) : named_(std::move(datasets)) {}
  /// Several data sets with names.
  EvalDatasets(std::initializer_list<Named::value_type> datasets) : named_(datasets) {}

  /// Whether there is a data set.
  explicit operator bool() const { return single_ || !named_.empty(); }
  /// Whether there are several with names.
  bool is_named() const { return !named_.empty(); }
  /// The only one; empty when there are several.
  const DatasetRef& single() const { return single_; }
  /// Those with names.
  const Named& named() const { return named_; }

 private:
  DatasetRef single_;
  Named named_;
};

/// Computes a loss from `(outputs, labels, num_items_in_batch)`. The labels are undefined when the
/// batch has none.
using ComputeLossFunction = std::function<torch::Tensor(const ModelOutput&, const torch::Tensor&,
                                                        const std::optional<torch::Tensor>&)>;
/// Makes an optimizer for the two parameter groups, with and without weight decay.
using OptimizerFactory = std::function<std::shared_ptr<Optimizer>(std::vector<ParamGroupInit>,
                                                                  const TrainingArguments&)>;

/// An optimizer and a schedule that the user made. Each may be null; the Trainer then makes it.
struct Optimizers {
  std::shared_ptr<Optimizer> optimizer = nullptr;       ///< Holds the model's parameters.
  std::shared_ptr<LRScheduler> lr_scheduler = nullptr;  ///< A schedule of that optimizer.
};

/// The 13 parameters of the constructor of transformers' Trainer, by name. `Arguments` is
/// TrainingArguments, or the arguments of a trainer that adds to them.
template <class Arguments>
struct TrainerOptionsWith {
  std::shared_ptr<Model> model = nullptr;  ///< Set either this or `model_init`.
  Arguments args = {};                     ///< Checked and completed by the Trainer.
  DataCollator data_collator = nullptr;    ///< By default pads with a tokenizer, else stacks.
  DatasetRef train_dataset = nullptr;      ///< Needed by `train()`.
  EvalDatasets eval_dataset = nullptr;     ///< For evaluations during training, and by default.
  std::shared_ptr<TokenizerLike> processing_class =
      nullptr;  ///< The tokenizer; saved with the model.
  /// Makes the model. Called after seeding, in the constructor and at every `train()`.
  std::function<std::shared_ptr<Model>()> model_init = nullptr;
  ComputeLossFunction compute_loss_func = nullptr;  ///< Replaces the model's own loss.
  ComputeMetrics compute_metrics = nullptr;         ///< Metrics of evaluations.
  std::vector<CallbackHandle> callbacks = {};       ///< Run in this order.
  Optimizers optimizers = {};                       ///< Not together with `model_init`.
  OptimizerFactory optimizer_factory = nullptr;     ///< Not together with `optimizers`.
  /// Changes the logits of each batch before they are kept for the metrics.
  PreprocessLogits preprocess_logits_for_metrics = nullptr;

  /// The options of a plain Trainer, with the arguments it knows.
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

/// What the constructor of `Trainer` takes.
using TrainerOptions = TrainerOptionsWith<TrainingArguments>;

}  // namespace gradus
