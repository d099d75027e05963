#include "tasks/question_data.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/tasks/text_metrics.h>

#include "text/characters.h"

namespace gradus::tasks {

KnownAnswers known_answers(const Example& row, const std::string& column,
                           const std::string& where) {
  const auto& cell = row.at(column);
  try {
    return {cell.json().at("text").get<std::vector<std::string>>(),
            cell.json().at("answer_start").get<std::vector<int64_t>>()};
  } catch (const std::exception&) {
    throw Error("G-TASK-11", ErrorKind::data,
                fmt::format("{}: column '{}' holds {}, expected an object with the lists 'text' "
                            "and 'answer_start'",
                            where, column, cell.is_null() ? "null" : cell.type_name()),
                "Write answers as {\"text\": [\"…\"], \"answer_start\": [0]}.");
  }
}

std::string question_id(const Example& row, const std::string& column) {
  const auto& id = row.at(column);
  return id.is_int() ? std::to_string(id.integer()) : id.str();
}

Split open_questions(const DataFlags& flags, const std::optional<std::string>& file,
                     const std::string& name) {
  LoadOptions options;
  if (file && !flags.format &&
      (file->ends_with(".json") || file->ends_with(".json.gz") || file->ends_with(".json.zst")))
    options.field = "data";
  return open_split(flags, file, name, options);
}

int64_t usable_length(int64_t max_seq_length, const Tokenizer& tokenizer) {
  const auto longest = tokenizer.model_max_length();
  if (!longest || max_seq_length <= *longest) return max_seq_length;
  log_warning(
      fmt::format("The max_seq_length passed ({}) is larger than the maximum length for "
                  "the model ({}). Using max_seq_length={}.",
                  max_seq_length, *longest, *longest));
  return *longest;
}

std::string without_leading_space(const std::string& text) {
  return text::utf8_of(text::strip_left(text::code_points(text)));
}

Metrics answer_scores(const std::vector<std::vector<std::string>>& references,
                      const std::vector<std::string>& predictions, bool with_negatives) {
  return with_negatives ? metrics::squad_v2(references, predictions)
                        : metrics::squad(references, predictions);
}

}  // namespace gradus::tasks
