#pragma once

#include <gradus/functional/trainer.h>
#include <gradus/models/pretrained_model.h>
#include <gradus/tasks/natural_questions.h>
#include <gradus/tasks/task.h>
#include <gradus/text/tokenizer.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus::tasks {

/// What a run on natural questions is made of.
struct NaturalQuestionsRun {
  TrainingArguments args;
  functional::Args functional_args;
  std::optional<std::filesystem::path> checkpoint;  ///< to resume from
  std::shared_ptr<PreTrainedModel> model;
  std::shared_ptr<Tokenizer> tokenizer;
  int64_t max_length = 4096;                  ///< tokens of a row
  std::shared_ptr<const Dataset> train;       ///< prepared; null without training
  std::shared_ptr<const Dataset> validation;  ///< prepared
  /// Questions with their documents, for the exact match; null when only prepared rows are there.
  std::shared_ptr<const Dataset> questions;
  std::string where;  ///< names them in messages
};

/// The model as Flax's trainer sees it: parameters and a loss.
functional::ModelFunction natural_questions_function(const std::shared_ptr<PreTrainedModel>& model);

/// Trains with `functional::Trainer` and evaluates, as `args` says.
TaskResult run_natural_questions(const NaturalQuestionsRun& run,
                                 const std::vector<CallbackHandle>& callbacks);

/// The share of questions that the model answers exactly, in percent ("exact_match"), as the
/// example's evaluate.py counts it: of those with an answer whose text has fewer characters than
/// four times `max_length`. What it answered is written to `predictions`.
Metrics exact_match(const NaturalQuestionsRun& run, const std::filesystem::path& predictions);

}  // namespace gradus::tasks
