#include <gradus/trainers/question_answering.h>

namespace gradus {
namespace {

TrainerOptions plain_options(const QuestionAnsweringTrainerOptions& options) {
  return {.model = options.model,
          .args = options.args,
          .data_collator = options.data_collator,
          .train_dataset = options.train_dataset,
          .eval_dataset = options.eval_dataset,
          .processing_class = options.processing_class,
          .model_init = options.model_init,
          .compute_loss_func = options.compute_loss_func,
          .compute_metrics = nullptr,
          .callbacks = options.callbacks,
          .optimizers = options.optimizers,
          .optimizer_factory = options.optimizer_factory,
          .preprocess_logits_for_metrics = options.preprocess_logits_for_metrics};
}

// Data sets of an evaluation, there as long as it lasts.
class UseForEvaluation {
 public:
  UseForEvaluation(DatasetRef& place, DatasetRef dataset) : place_(place) {
    place_ = std::move(dataset);
  }
  ~UseForEvaluation() { place_ = nullptr; }
  UseForEvaluation(const UseForEvaluation&) = delete;
  UseForEvaluation& operator=(const UseForEvaluation&) = delete;

 private:
  DatasetRef& place_;
};

}  // namespace

QuestionAnsweringTrainer::QuestionAnsweringTrainer(QuestionAnsweringTrainerOptions options)
    : Trainer(plain_options(options)),
      compute_metrics_(std::move(options.compute_metrics)),
      post_process_function_(std::move(options.post_process_function)),
      eval_dataset_(options.eval_dataset.single()),
      eval_examples_(std::move(options.eval_examples)) {}

Metrics QuestionAnsweringTrainer::evaluate(EvalDatasets eval_dataset,
                                           std::optional<Names> ignore_keys,
                                           const std::string& metric_key_prefix) {
  const UseForEvaluation features(features_, eval_dataset ? eval_dataset.single() : eval_dataset_);
  const UseForEvaluation examples(examples_, eval_examples_);
  return Trainer::evaluate(std::move(eval_dataset), std::move(ignore_keys), metric_key_prefix);
}

Metrics QuestionAnsweringTrainer::evaluate(DatasetRef eval_dataset, DatasetRef eval_examples,
                                           std::optional<Names> ignore_keys,
                                           const std::string& metric_key_prefix) {
  const UseForEvaluation features(features_, eval_dataset);
  const UseForEvaluation examples(examples_, std::move(eval_examples));
  return Trainer::evaluate(std::move(eval_dataset), std::move(ignore_keys), metric_key_prefix);
}

PredictionOutput QuestionAnsweringTrainer::predict(DatasetRef predict_dataset,
                                                   DatasetRef predict_examples,
                                                   std::optional<Names> ignore_keys,
                                                   const std::string& metric_key_prefix) {
  const UseForEvaluation features(features_, predict_dataset);
  const UseForEvaluation examples(examples_, std::move(predict_examples));
  return Trainer::predict(std::move(predict_dataset), std::move(ignore_keys), metric_key_prefix);
}

EvalLoopOutput QuestionAnsweringTrainer::evaluation_loop(const DataLoader& dataloader,
                                                         const std::string& description,
                                                         std::optional<bool> prediction_loss_only,
                                                         std::optional<Names> ignore_keys,
                                                         const std::string& metric_key_prefix) {
  const bool answers =
      compute_metrics_ && post_process_function_ && features_.map_style() && examples_.map_style();
  // The base class has no compute_metrics and would drop the logits.
  if (answers) prediction_loss_only = std::nullopt;
  auto output = Trainer::evaluation_loop(dataloader, description, prediction_loss_only,
                                         std::move(ignore_keys), metric_key_prefix);
  if (!answers || !args().should_save() || output.prediction.prediction_parts.empty())
    return output;
  const auto found = post_process_function_(*examples_.map_style(), *features_.map_style(),
                                            output.prediction.prediction_parts,
                                            description == "Prediction" ? "predict" : "eval");
  const auto prefix = metric_key_prefix + "_";
  for (const auto& [key, value] : compute_metrics_(found))
    output.metrics[key.starts_with(prefix) ? key : prefix + key] = value;
  return output;
}

StepTraits QuestionAnsweringTrainer::step_traits() const {
  if (is_exactly<QuestionAnsweringTrainer>()) return {.recordable = true, .reads_logits = false};
  return {};
}

}  // namespace gradus
