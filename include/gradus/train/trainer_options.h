#pragma once

#include <gradus/config/training_arguments.h>
#include <gradus/data/data_loader.h>
#include <gradus/models/model.h>
#include <gradus/train/callback.h>
#include <gradus/train/evaluation.h>
#include <gradus/train/model_init.h>

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
  DatasetRef single_;  ///< The only one.
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

/// Options for another trainer with everything of `given` that both have. `args` stay at their
/// defaults where `given` has arguments of a smaller kind. `compute_metrics` is left out where the
/// two score different things.
template <class To, class From>
To convert_options(const From& given);

/// What the constructor of a trainer takes: the 13 parameters of the constructor of transformers'
/// Trainer, by name. `Given` is TrainingArguments, or the arguments of a trainer that adds to them.
///
/// A trainer that takes more than these has a struct of its own, which names the same two types and
/// includes the same file.
template <class Given>
struct TrainerOptionsWith {
  using Arguments = Given;               ///< Their type.
  using ScoreFunction = ComputeMetrics;  ///< Scores tensors.
#include <gradus/train/trainer_options_fields.inc>

  /// The options of a plain Trainer, with the arguments it knows.
  operator TrainerOptionsWith<TrainingArguments>() const  // NOLINT: meant to convert
    requires(!std::is_same_v<Given, TrainingArguments>)
  {
    return convert_options<TrainerOptionsWith<TrainingArguments>>(*this);
  }
};

/// What the constructor of `Trainer` takes.
using TrainerOptions = TrainerOptionsWith<TrainingArguments>;

// The members that every struct of options has, one by one.
template <class To, class From>
To convert_options(const From& given) {
  // Written out: options are aggregates, so that they can be given by name, and have no base.
  To to;
  to.model = given.model;
  if constexpr (std::is_convertible_v<typename From::Arguments, typename To::Arguments>)
    to.args = given.args;
  to.data_collator = given.data_collator;
  to.train_dataset = given.train_dataset;
  to.eval_dataset = given.eval_dataset;
  to.processing_class = given.processing_class;
  // What makes the model, its loss and its scores.
  to.model_init = given.model_init;
  to.compute_loss_func = given.compute_loss_func;
  if constexpr (std::is_same_v<typename From::ScoreFunction, typename To::ScoreFunction>)
    to.compute_metrics = given.compute_metrics;
  // What changes the loop itself.
  to.callbacks = given.callbacks;
  to.optimizers = given.optimizers;
  to.optimizer_factory = given.optimizer_factory;
  to.preprocess_logits_for_metrics = given.preprocess_logits_for_metrics;
  return to;
}

}  // namespace gradus
