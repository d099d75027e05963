#pragma once

#include <gradus/trainers/question_answering.h>

#include "tasks/labeling_task.h"

namespace gradus::tasks {

/// What the tasks that answer questions about a text do alike.
class QuestionTask : public LabelingTask {
 protected:
  /// The columns of a question.
  struct Columns {
    std::string question, context, answers;
  };
  /// Makes rows for the model of a split; `train`: with labels, else so that answers can be found.
  using PrepareRows = std::function<Split(const Split& split, bool train)>;
  /// Scores answers.
  using ScoreAnswers = QuestionAnsweringTrainerOptions::ScoreFunction;

  /// The questions of each stage, as many as the flags allow.
  Splits open_stages(const TrainingArguments& args) const;
  /// The rows made of them, again as many as the flags allow.
  Splits features_of(const Splits& examples, const PrepareRows& prepare) const;
  /// Throws G-SRC-7 when a column is missing; other questions than those to train on need an `id`.
  static void require_question_columns(const Split& split, const Columns& columns, bool train);
  /// Makes the rows of a split and keeps them under `settings`.
  Split prepare_questions(const Split& split, const MapFunction& function,
                          const std::string& settings, const TrainingArguments& args) const;
  /// SQuAD's scores; `negatives`: 2.0, where questions may have no answer.
  static ScoreAnswers scores_of_answers(bool negatives);
};

}  // namespace gradus::tasks
