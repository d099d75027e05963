#include "tasks/question_task.h"

#include "tasks/question_data.h"

namespace gradus::tasks {

LabelingTask::Splits QuestionTask::open_stages(const TrainingArguments& args) const {
  Splits splits;
  if (args.do_train) splits.train = open_questions(data_, data_.train_file, "train");
  if (args.do_eval) splits.validation = open_questions(data_, data_.validation_file, "validation");
  if (args.do_predict) splits.test = open_questions(data_, predict_.test_file, "test");
  require_splits(args, splits, "Name the file with --validation_file or --test_file.");
  return limited(std::move(splits));
}

LabelingTask::Splits QuestionTask::features_of(const Splits& examples,
                                               const PrepareRows& prepare) const {
  const auto of = [&](const Split& split, bool train, std::optional<int64_t> most) {
    return split ? first_rows(prepare(split, train), most) : Split();
  };
  return {of(examples.train, true, data_.max_train_samples),
          of(examples.validation, false, data_.max_eval_samples),
          of(examples.test, false, predict_.max_predict_samples)};
}

void QuestionTask::require_question_columns(const Split& split, const Columns& columns,
                                            bool train) {
  std::vector<ColumnNeed> needs = {{.name = columns.question, .kinds = {ColumnKind::text}},
                                   {.name = columns.context, .kinds = {ColumnKind::text}},
                                   {.name = columns.answers}};
  if (!train) needs.push_back({.name = "id"});
  require_columns(*split.rows, needs, split.where);
}

Split QuestionTask::prepare_questions(const Split& split, const MapFunction& function,
                                      const std::string& settings,
                                      const TrainingArguments& args) const {
  return prepare_split(split, function,
                       {.task = name(), .settings = settings, .wanted = "at least one question"},
                       model_, data_, !args.disable_tqdm.value_or(false));
}

QuestionTask::ScoreAnswers QuestionTask::scores_of_answers(bool negatives) {
  return [negatives](const AnswerPrediction& answers) {
    return answer_scores(answers.references, answers.predictions, negatives);
  };
}

}  // namespace gradus::tasks
