#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/trainers/question_answering.h>

namespace gradus {
namespace {

template <class Options>
AnswerScoring scoring_of(const Options& options) {
  return AnswerScoring(options.compute_metrics, options.post_process_function,
                       options.eval_dataset.single(), options.eval_examples);
}

const char* stage_of(const std::string& description) {
  return description == "Prediction" ? "predict" : "eval";
}

}  // namespace

AnswerScoring::AnswerScoring(std::function<Metrics(const AnswerPrediction&)> compute_metrics,
                             PostProcessFunction post_process_function, DatasetRef eval_dataset,
                             DatasetRef eval_examples)
    : compute_metrics_(std::move(compute_metrics)),
      post_process_function_(std::move(post_process_function)),
      eval_dataset_(std::move(eval_dataset)),
      eval_examples_(std::move(eval_examples)) {}

AnswerScoring::Use::Use(AnswerScoring& scoring, DatasetRef features, DatasetRef examples)
    : scoring_(scoring) {
  scoring_.features_ = std::move(features);
  scoring_.examples_ = std::move(examples);
}

AnswerScoring::Use::~Use() { scoring_.features_ = scoring_.examples_ = nullptr; }

AnswerScoring::Use AnswerScoring::use_defaults(const EvalDatasets& eval_dataset) {
  return Use(*this, eval_dataset ? eval_dataset.single() : eval_dataset_, eval_examples_);
}

bool AnswerScoring::is_wanted() const {
  return compute_metrics_ && post_process_function_ && features_.map_style() &&
         examples_.map_style();
}

void AnswerScoring::add_scores(EvalLoopOutput& output, const std::string& stage,
                               const std::string& metric_key_prefix) const {
  if (output.prediction.prediction_parts.empty()) return;
  const auto rows = output.prediction.prediction_parts.front().size(0),
             expected = features_.map_style()->size();
  if (rows < expected)
    throw Error(
        "G-TASK-16", ErrorKind::usage,
        fmt::format("there are predictions for {} of {} parts of texts, but every "
                    "question needs an answer",
                    rows, expected),
        "Leave --dataloader_drop_last out, which drops the last, short batch; a data loader "
        "of your own must give every row once.");
  const auto answers = post_process_function_(*examples_.map_style(), *features_.map_style(),
                                              output.prediction.prediction_parts, stage);
  const auto prefix = metric_key_prefix + "_";
  for (const auto& [key, value] : compute_metrics_(answers))
    output.metrics[key.starts_with(prefix) ? key : prefix + key] = value;
}

QuestionAnsweringTrainer::QuestionAnsweringTrainer(QuestionAnsweringTrainerOptions options)
    : Trainer(convert_options<TrainerOptions>(options)), scoring_(scoring_of(options)) {}

Metrics QuestionAnsweringTrainer::evaluate(EvalDatasets eval_dataset,
                                           std::optional<Names> ignore_keys,
                                           const std::string& metric_key_prefix) {
  const auto use = scoring_.use_defaults(eval_dataset);
  return Trainer::evaluate(std::move(eval_dataset), std::move(ignore_keys), metric_key_prefix);
}

Metrics QuestionAnsweringTrainer::evaluate(DatasetRef eval_dataset, DatasetRef eval_examples,
                                           std::optional<Names> ignore_keys,
                                           const std::string& metric_key_prefix) {
  const AnswerScoring::Use use(scoring_, eval_dataset, std::move(eval_examples));
  return Trainer::evaluate(std::move(eval_dataset), std::move(ignore_keys), metric_key_prefix);
}

PredictionOutput QuestionAnsweringTrainer::predict(DatasetRef predict_dataset,
                                                   DatasetRef predict_examples,
                                                   std::optional<Names> ignore_keys,
                                                   const std::string& metric_key_prefix) {
  const AnswerScoring::Use use(scoring_, predict_dataset, std::move(predict_examples));
  return Trainer::predict(std::move(predict_dataset), std::move(ignore_keys), metric_key_prefix);
}

EvalLoopOutput QuestionAnsweringTrainer::evaluation_loop(const DataLoader& dataloader,
                                                         const std::string& description,
                                                         std::optional<bool> prediction_loss_only,
                                                         std::optional<Names> ignore_keys,
                                                         const std::string& metric_key_prefix) {
  // The base class has no compute_metrics and would drop the logits.
  if (scoring_.is_wanted()) prediction_loss_only = std::nullopt;
  auto output = Trainer::evaluation_loop(dataloader, description, prediction_loss_only,
                                         std::move(ignore_keys), metric_key_prefix);
  if (scoring_.is_wanted() && args().should_save())
    scoring_.add_scores(output, stage_of(description), metric_key_prefix);
  return output;
}

StepTraits QuestionAnsweringTrainer::step_traits() const {
  if (is_exactly<QuestionAnsweringTrainer>()) return {.recordable = true, .reads_logits = false};
  return {};
}

QuestionAnsweringSeq2SeqTrainer::QuestionAnsweringSeq2SeqTrainer(
    QuestionAnsweringSeq2SeqTrainerOptions options)
    : Seq2SeqTrainer(convert_options<Seq2SeqTrainerOptions>(options)),
      scoring_(scoring_of(options)) {}

Metrics QuestionAnsweringSeq2SeqTrainer::evaluate(EvalDatasets eval_dataset,
                                                  std::optional<Names> ignore_keys,
                                                  const std::string& metric_key_prefix) {
  const auto use = scoring_.use_defaults(eval_dataset);
  return Trainer::evaluate(std::move(eval_dataset), std::move(ignore_keys), metric_key_prefix);
}

PredictionOutput QuestionAnsweringSeq2SeqTrainer::predict(DatasetRef predict_dataset,
                                                          DatasetRef predict_examples,
                                                          std::optional<Names> ignore_keys,
                                                          const std::string& metric_key_prefix,
                                                          const GenerationOptions& generation) {
  const AnswerScoring::Use use(scoring_, predict_dataset, std::move(predict_examples));
  return Seq2SeqTrainer::predict(std::move(predict_dataset), std::move(ignore_keys),
                                 metric_key_prefix, generation);
}

EvalLoopOutput QuestionAnsweringSeq2SeqTrainer::evaluation_loop(
    const DataLoader& dataloader, const std::string& description,
    std::optional<bool> prediction_loss_only, std::optional<Names> ignore_keys,
    const std::string& metric_key_prefix) {
  if (scoring_.is_wanted()) prediction_loss_only = std::nullopt;  // as above
  predicts_ = description == "Prediction";
  auto output = Seq2SeqTrainer::evaluation_loop(dataloader, description, prediction_loss_only,
                                                std::move(ignore_keys), metric_key_prefix);
  if (scoring_.is_wanted() && args().should_save())
    scoring_.add_scores(output, stage_of(description), metric_key_prefix);
  return output;
}

GenerationOptions QuestionAnsweringSeq2SeqTrainer::generation_options() const {
  return predicts_ ? given_generation() : Seq2SeqTrainer::generation_options();
}

StepTraits QuestionAnsweringSeq2SeqTrainer::step_traits() const {
  if (is_exactly<QuestionAnsweringSeq2SeqTrainer>())
    return {.recordable = true, .reads_logits = false};
  return {};
}

}  // namespace gradus
