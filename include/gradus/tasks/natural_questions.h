#pragma once

#include <gradus/data/batch.h>
#include <gradus/data/cached_map.h>
#include <gradus/data/dataset.h>
#include <gradus/text/tokenizer.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// Natural questions as transformers' Flax example of BigBird prepares, batches and scores them.
///
/// The task `natural-questions` is made of these parts, and a program of one's own can be, too:
/// `row_maker` and `without_null_rows` prepare rows, `Collator` makes batches of them for
/// `functional::Trainer`, `best_span` and `matches` judge what the model says. All functions may be
/// called from several threads.
namespace gradus::natural_questions {

/// The kinds of an answer, in the order of the model's five scores.
enum class Kind {
  none,          ///< "null": the part of the document does not answer the question.
  short_answer,  ///< "short": a few words.
  long_answer,   ///< "long": a paragraph or table.
  yes,           ///< "yes".
  no             ///< "no".
};
/// The name of a kind in the example: "null", "short", "long", "yes" or "no".
std::string kind_name(Kind kind);

/// How documents are cut into rows.
struct Options {
  int64_t max_length = 4096;  ///< Tokens of a row: the question and a part of the document.
  int64_t doc_stride = 2048;  ///< The parts begin `max_length - doc_stride` tokens apart.
  /// Every part is searched for the answer by itself. False, as in the example: once a part is
  /// without the answer, so are all later ones, and an answer behind the first part is lost.
  bool label_every_part = false;
};

/// One row for the model.
struct Row {
  std::vector<int64_t> input_ids;  ///< Question, separator, a part of the document.
  int64_t start = -100;            ///< First token of the answer; -100: none is here.
  int64_t end = -100;              ///< Last token of the answer; -100: none is here.
  Kind kind = Kind::none;          ///< What `category` of the example's files says.
};

/// A question with its document and annotations.
struct Question {
  /// Reads a row with the columns of the `natural_questions` data set: `id`, `question` {text},
  /// `document` {tokens {token, is_html}}, `annotations` {yes_no_answer, short_answers,
  /// long_answer}. Throws `Error` G-TASK-11 with `where` when something is missing or of another
  /// type.
  Question(const Example& row, const std::string& where);

  std::string id;          ///< The row's own, as text.
  std::string question;    ///< The question.
  std::string context;     ///< The document without HTML: its tokens with a space between two.
  Kind kind = Kind::none;  ///< Of the answer to train on.
  int64_t start = -1;      ///< Its first word in the context; -1: none.
  int64_t end = -1;        ///< Its last word in the context; -1: none.
  /// For the evaluation: "yes", "no", "null" or, when there is text to find, "long_short".
  std::string category;
  std::vector<std::string> targets;  ///< For the evaluation: every right answer.
};

/// The rows of a question; none when it has no answer, or one of HTML alone. Throws `Error`
/// G-TASK-11 with `where` when the answer is outside the document or the question fills a row
/// alone, G-TASK-12 when the tokenizer has no separator.
std::vector<Row> rows_of(const Question& question, const Tokenizer& tokenizer,
                         const Options& options, const std::string& where);

/// Turns questions into rows with the columns of the example's files: `input_ids`, `start_token`,
/// `end_token` and `category`. It is for `map_rows`, which calls it on several threads. Throws as
/// `rows_of` and the constructor of `Question`, with `where` in the message.
MapFunction row_maker(std::shared_ptr<const Tokenizer> tokenizer, const Options& options,
                      std::string where);

/// The prepared rows without a share of those that have no answer, as the example leaves them out:
/// `numpy.random`, started with `seed`, draws one number for each. The result is a view of `rows`.
std::shared_ptr<const Dataset> without_null_rows(const std::shared_ptr<const Dataset>& rows,
                                                 double share = 0.6, int64_t seed = 42);

/// Makes batches of prepared rows, all padded to the same length: `input_ids`, `attention_mask`,
/// `start_labels`, `end_labels` and `pooled_labels`.
///
/// Checkpoints of `functional::Trainer` keep its settings.
class Collator {
 public:
  /// `pad_id` is the id of the padding token.
  explicit Collator(int64_t pad_id, int64_t max_length = 4096)
      : pad_id_(pad_id), max_length_(max_length) {}
  /// The batch of these rows. Throws `Error` G-TASK-11 for a row that is longer than `max_length`,
  /// and G-DATA-1 when a column is missing.
  Batch operator()(std::vector<Example> rows) const;
  /// What `from_settings` takes.
  nlohmann::json settings() const;
  /// A collator with settings from a checkpoint. Throws `Error` G-FN-4 for anything else.
  static Collator from_settings(const nlohmann::json& settings);

 private:
  int64_t pad_id_, max_length_;
};

/// The start and end with the highest sum among the eight best of each, the end not before the
/// start and at most `max_size` tokens behind it.
std::pair<int64_t, int64_t> best_span(std::span<const float> starts, std::span<const float> ends,
                                      int64_t max_size);

/// Whether an answer is one of the targets by the example's rule: case, spaces, quotation marks,
/// full stops, commas, hyphens and underscores do not count, and of a target with several words the
/// first or the last may be missing.
bool matches(const std::vector<std::string>& targets, const std::string& answer);

}  // namespace gradus::natural_questions
