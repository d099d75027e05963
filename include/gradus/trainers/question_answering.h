#pragma once

#include <gradus/train/trainer.h>
#include <gradus/trainers/seq2seq.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// The answers to some questions, beside those that are right. All lists have one entry per
/// question.
struct AnswerPrediction {
  std::vector<std::string> ids;                      ///< of the questions
  std::vector<std::string> predictions;              ///< the text of each answer; empty for none
  std::vector<std::vector<std::string>> references;  ///< all right answers; none when there is none
};

/// Makes answers of the model's outputs.
///
/// `examples` are the questions as they were read, `features` the rows made of them for the model,
/// `predictions` the outputs for these rows. `stage` is "eval" or "predict".
using PostProcessFunction =
    std::function<AnswerPrediction(const Dataset& examples, const Dataset& features,
                                   const TensorList& predictions, const std::string& stage)>;

/// The members of `TrainerOptions`, and what makes answers. `compute_metrics` scores answers, not
/// tensors.
template <class Given>
struct AnswerTrainerOptionsWith {
  using Arguments = Given;                                                ///< Their type.
  using ScoreFunction = std::function<Metrics(const AnswerPrediction&)>;  ///< Scores answers.
#include <gradus/train/trainer_options_fields.inc>
  DatasetRef eval_examples = nullptr;                   ///< The questions behind `eval_dataset`.
  PostProcessFunction post_process_function = nullptr;  ///< Makes answers of logits or tokens.
};

/// What the constructor of `QuestionAnsweringTrainer` takes.
using QuestionAnsweringTrainerOptions = AnswerTrainerOptionsWith<TrainingArguments>;

/// What both trainers of this header do after an evaluation loop: answers, then their scores.
class AnswerScoring {
 public:
  /// The parts of the options that a plain Trainer does not have.
  AnswerScoring(std::function<Metrics(const AnswerPrediction&)> compute_metrics,
                PostProcessFunction post_process_function, DatasetRef eval_dataset,
                DatasetRef eval_examples);

  /// The data of one evaluation, known as long as this object lives.
  class Use {
   public:
    /// `examples` are the questions behind `features`.
    Use(AnswerScoring& scoring, DatasetRef features, DatasetRef examples);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    AnswerScoring& scoring_;
  };
  /// The data of the options, for an evaluation that was given `eval_dataset` or nothing.
  Use use_defaults(const EvalDatasets& eval_dataset);

  /// Whether the evaluation under way gets answers, so that its outputs must be kept.
  bool is_wanted() const;
  /// Adds the scores to the metrics of a loop. `stage` is "eval" or "predict".
  void add_scores(EvalLoopOutput& output, const std::string& stage,
                  const std::string& metric_key_prefix) const;

 private:
  std::function<Metrics(const AnswerPrediction&)> compute_metrics_;
  PostProcessFunction post_process_function_;
  DatasetRef eval_dataset_, eval_examples_;
  DatasetRef features_, examples_;  ///< of the evaluation under way
};

/// The Trainer for models that find an answer in a text, the `QuestionAnsweringTrainer` of
/// transformers' examples.
///
/// A long text becomes several rows, so that outputs are no answers yet. After an evaluation
/// `post_process_function` makes answers of all outputs together, and `compute_metrics` scores
/// them. Only the process that saves does so. Without one of the two functions it is a plain
/// Trainer.
class QuestionAnsweringTrainer : public Trainer {
 public:
  /// As the constructor of `Trainer`.
  explicit QuestionAnsweringTrainer(QuestionAnsweringTrainerOptions options);

  /// Evaluates; the questions are `eval_examples` of the options.
  Metrics evaluate(EvalDatasets eval_dataset = {}, std::optional<Names> ignore_keys = {},
                   const std::string& metric_key_prefix = "eval") override;
  /// The same with other questions.
  Metrics evaluate(DatasetRef eval_dataset, DatasetRef eval_examples,
                   std::optional<Names> ignore_keys = {},
                   const std::string& metric_key_prefix = "eval");
  using Trainer::predict;
  /// Predicts on rows made of `predict_examples`. The metrics are those of the answers; the
  /// predictions are the model's outputs.
  PredictionOutput predict(DatasetRef predict_dataset, DatasetRef predict_examples,
                           std::optional<Names> ignore_keys = {},
                           const std::string& metric_key_prefix = "test");

  /// The loop, then the answers and their scores.
  EvalLoopOutput evaluation_loop(const DataLoader& dataloader, const std::string& description,
                                 std::optional<bool> prediction_loss_only = {},
                                 std::optional<Names> ignore_keys = {},
                                 const std::string& metric_key_prefix = "eval") override;

 protected:
  /// Training steps are those of `Trainer`.
  StepTraits step_traits() const override;

 private:
  AnswerScoring scoring_;
};

/// What the constructor of `QuestionAnsweringSeq2SeqTrainer` takes.
using QuestionAnsweringSeq2SeqTrainerOptions = AnswerTrainerOptionsWith<Seq2SeqTrainingArguments>;

/// The same for models that write the answer, the `QuestionAnsweringSeq2SeqTrainer` of
/// transformers' examples.
///
/// With `predict_with_generate` the predictions that `post_process_function` receives are generated
/// tokens. As in transformers, `predict` generates as it is told and as the model's
/// generation_config says; `generation_max_length` and `generation_num_beams` hold for `evaluate`.
class QuestionAnsweringSeq2SeqTrainer : public Seq2SeqTrainer {
 public:
  /// As the constructor of `Seq2SeqTrainer`.
  explicit QuestionAnsweringSeq2SeqTrainer(QuestionAnsweringSeq2SeqTrainerOptions options);

  using Seq2SeqTrainer::evaluate;
  /// Evaluates; the questions are `eval_examples` of the options.
  Metrics evaluate(EvalDatasets eval_dataset = {}, std::optional<Names> ignore_keys = {},
                   const std::string& metric_key_prefix = "eval") override;
  using Seq2SeqTrainer::predict;
  /// Predicts on rows made of `predict_examples`.
  PredictionOutput predict(DatasetRef predict_dataset, DatasetRef predict_examples,
                           std::optional<Names> ignore_keys = {},
                           const std::string& metric_key_prefix = "test",
                           const GenerationOptions& generation = {});

  /// The loop, then the answers and their scores.
  EvalLoopOutput evaluation_loop(const DataLoader& dataloader, const std::string& description,
                                 std::optional<bool> prediction_loss_only = {},
                                 std::optional<Names> ignore_keys = {},
                                 const std::string& metric_key_prefix = "eval") override;

 protected:
  /// Without the arguments in a prediction.
  GenerationOptions generation_options() const override;
  /// A batch counts as the rows it has, unlike in `Seq2SeqTrainer`.
  int64_t rows_of_loss(int64_t rows) const override { return rows; }
  /// Training steps are those of `Trainer`.
  StepTraits step_traits() const override;

 private:
  AnswerScoring scoring_;
  bool predicts_ = false;  ///< within `predict` with questions
};

/// How `postprocess_qa_predictions` chooses answers; the fields of transformers' function.
struct PostProcessOptions {
  bool version_2_with_negative = false;    ///< A question may have no answer.
  int64_t n_best_size = 20;                ///< Starts, ends and answers that are looked at.
  int64_t max_answer_length = 30;          ///< In tokens.
  double null_score_diff_threshold = 0.0;  ///< "No answer" must win by more than this.
  /// Where `predictions.json`, `nbest_predictions.json` and, with version 2, `null_odds.json` are
  /// written; unset: nowhere.
  std::optional<std::filesystem::path> output_dir = std::nullopt;
  std::optional<std::string> prefix = std::nullopt;  ///< `eval` for `eval_predictions.json` etc.
};

/// The text of the best answer for each row of `examples`, from the logits of start and end.
///
/// `examples` have the columns `id` and `context`. `features` have `example_id` and
/// `offset_mapping`: for each token where it begins and ends in the context, in characters; tokens
/// that are not in the context have none. It is a nested list with null for these, or a flat list
/// of numbers with -1. Throws `Error` G-TASK-16 when logits and features do not belong together.
std::vector<std::string> postprocess_qa_predictions(const Dataset& examples,
                                                    const Dataset& features,
                                                    const TensorList& predictions,
                                                    const PostProcessOptions& options = {});

}  // namespace gradus
