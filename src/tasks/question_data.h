#pragma once

#include "tasks/text_data.h"

namespace gradus::tasks {

/// The right answers to a question; both lists are empty when there is none.
struct KnownAnswers {
  std::vector<std::string> texts;
  std::vector<int64_t> starts;  ///< where they begin in the context, in characters
};
/// The object {"text": […], "answer_start": […]} of a row. Throws G-TASK-11 for something else.
KnownAnswers known_answers(const Example& row, const std::string& column, const std::string& where);

/// The column `id` as text.
std::string question_id(const Example& row, const std::string& column = "id");

/// As `open_split`. A .json file is an object whose `data` is the list of rows, as in
/// transformers' scripts.
Split open_questions(const DataFlags& flags, const std::optional<std::string>& file,
                     const std::string& name);

/// --max_seq_length, or what the tokenizer takes if that is less, with a warning.
int64_t usable_length(int64_t max_seq_length, const Tokenizer& tokenizer);

/// Space at the front removed.
std::string without_leading_space(const std::string& text);

/// SQuAD's scores, 2.0 where questions may have no answer.
Metrics answer_scores(const std::vector<std::vector<std::string>>& references,
                      const std::vector<std::string>& predictions, bool with_negatives);

}  // namespace gradus::tasks
