#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/numpy_random.h>
#include <gradus/tasks/natural_questions.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "text/backend.h"
#include "text/characters.h"

namespace gradus::natural_questions {
namespace {

using nlohmann::json;

/// First and last token of an answer.
using Span = std::pair<int64_t, int64_t>;
constexpr Span kNoSpan = {-100, -100};  // what the loss leaves out

[[noreturn]] void refuse_question(const std::string& where, const std::string& what) {
  throw Error("G-TASK-11", ErrorKind::data, where + ": " + what,
              "The rows should have the columns of the natural_questions data set: id, question, "
              "document and annotations.");
}

const json& part_of(const json& value, const char* key, const std::string& where) {
  if (!value.is_object() || !value.contains(key))
    refuse_question(where, fmt::format("a question has no '{}'", key));
  return value.at(key);
}

const json& list_of(const json& value, const char* key, const std::string& where) {
  const auto& list = part_of(value, key, where);
  if (!list.is_array()) refuse_question(where, fmt::format("'{}' is not a list", key));
  return list;
}

json cell_json(const Example& row, const char* column, const std::string& where) {
  const auto* cell = row.find(column);
  if (cell == nullptr || !cell->is_nested())
    refuse_question(where, fmt::format("a question has no '{}'", column));
  return cell->json();
}

std::string text_cell(const Example& row, const char* column) {
  const auto* cell = row.find(column);
  if (cell == nullptr) return "";
  return cell->is_string() ? cell->str() : cell->is_int() ? std::to_string(cell->integer()) : "";
}

/// Where an answer begins and ends in the document's tokens, HTML included; the end is exclusive.
struct TokenRange {
  int64_t start = -1, end = -1;
};

/// The first of the annotations that has a short answer; unset when none has.
std::optional<TokenRange> short_range(const json& annotations, const std::string& where) {
  for (const auto& answer : list_of(annotations, "short_answers", where)) {
    const auto& starts = list_of(answer, "start_token", where);
    const auto& ends = list_of(answer, "end_token", where);
    if (!starts.empty() && !ends.empty())
      return TokenRange{starts.front().get<int64_t>(), ends.front().get<int64_t>()};
  }
  return std::nullopt;
}

TokenRange long_range(const json& annotations, const std::string& where) {
  const auto& answers = list_of(annotations, "long_answer", where);
  if (answers.empty()) refuse_question(where, "a question has no annotation of a long answer");
  return {part_of(answers.front(), "start_token", where).get<int64_t>(),
          part_of(answers.front(), "end_token", where).get<int64_t>()};
}

/// The document as the columns give it.
struct Document {
  std::vector<std::string> tokens;
  std::vector<bool> is_html;

  Document(const Example& row, const std::string& where) {
    const auto document = cell_json(row, "document", where);
    const auto& columns = part_of(document, "tokens", where);
    tokens = list_of(columns, "token", where).get<std::vector<std::string>>();
    for (const auto& flag : list_of(columns, "is_html", where))
      is_html.push_back(flag.is_boolean() ? flag.get<bool>() : flag.get<int64_t>() != 0);
    if (is_html.size() != tokens.size())
      refuse_question(where, "'token' and 'is_html' of a document differ in length");
  }

  /// The tokens of a range that are no HTML, with a space between two.
  std::string text(int64_t first, int64_t last) const {
    std::string result;
    bool is_first = true;
    for (auto i = std::max<int64_t>(first, 0); i < std::min(last, std::ssize(tokens)); ++i) {
      if (is_html[size_t(i)]) continue;
      if (!is_first) result += ' ';
      is_first = false;
      result += tokens[size_t(i)];
    }
    return result;
  }
  /// A place among the tokens that are no HTML.
  int64_t without_html(int64_t place) const {
    const auto before = std::clamp<int64_t>(place, 0, std::ssize(tokens));
    return place - std::count(is_html.begin(), is_html.begin() + before, true);
  }
};

void add_new(std::vector<std::string>& texts, std::string text) {
  if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
}

/// Every answer that counts as right: long ones, then short ones.
std::vector<std::string> answers_of(const json& annotations, const Document& document,
                                    const std::string& where) {
  std::vector<std::string> answers, short_answers;
  for (const auto& answer : list_of(annotations, "long_answer", where)) {
    const auto start = part_of(answer, "start_token", where).get<int64_t>();
    const auto end = part_of(answer, "end_token", where).get<int64_t>();
    if (start != -1) add_new(answers, document.text(start, end));
  }
  for (const auto& answer : list_of(annotations, "short_answers", where))
    for (const auto& text : list_of(answer, "text", where))
      add_new(short_answers, text.get<std::string>());
  answers.insert(answers.end(), short_answers.begin(), short_answers.end());
  return answers;
}

std::vector<std::string> spaced_parts(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char letter : text)
    if (letter == ' ')
      parts.emplace_back();
    else
      parts.back() += letter;
  return parts;
}

std::string joined(std::span<const std::string> parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : " ") + parts[i];
  return text;
}

/// Lower case, without spaces and some punctuation.
std::string plain_answer(const std::string& answer) {
  static constexpr std::u32string_view kLeftOut = U"_‘’´`.,-\"";
  std::u32string plain;
  for (const auto character : text::code_points(text::lowercase(answer)))
    if (kLeftOut.find(character) == std::u32string_view::npos && !text::is_space(character))
      plain += character;
  return text::utf8_of(plain);
}

int64_t separator_of(const Tokenizer& tokenizer) {
  if (const auto id = tokenizer.sep_token_id()) return *id;
  throw Error("G-TASK-12", ErrorKind::usage, "the tokenizer has no separator token",
              "Use a tokenizer with sep_token, as BigBird's has.");
}

/// Tokens of the question with its separator.
int64_t question_length(const std::vector<int64_t>& ids, int64_t separator,
                        const Question& question, int64_t max_length, const std::string& where) {
  const auto end = std::find(ids.begin(), ids.end(), separator);
  if (end == ids.end())
    refuse_question(where,
                    fmt::format("question {} has no separator token behind it", question.id));
  const auto length = end - ids.begin() + 1;
  if (length >= max_length)
    refuse_question(where,
                    fmt::format("the question {} has {} tokens, which leaves no room for its "
                                "document in a row of {}",
                                question.id, length, max_length));
  return length;
}

/// First and last token of the answer, behind a question of `length` tokens. They are counted as
/// the example counts them: the words before the answer are tokenized by themselves.
Span answer_tokens(const Question& question, const Tokenizer& tokenizer, int64_t length,
                   const std::string& where) {
  const auto words = text::words_of(question.context);
  if (question.end >= std::ssize(words))
    refuse_question(where,
                    fmt::format("the answer of question {} is outside its document", question.id));
  const std::span<const std::string> all(words);
  const auto tokens_of = [&](std::span<const std::string> some) {
    const EncodeOptions plain{.truncation = false, .add_special_tokens = false, .ids_only = true};
    return std::ssize(tokenizer.encode(joined(some), plain).ids());
  };
  const auto start = length + tokens_of(all.first(size_t(question.start)));
  const auto last_word = std::max<int64_t>(tokens_of(all.subspan(size_t(question.end), 1)), 1);
  return {start, length + tokens_of(all.first(size_t(question.end))) + last_word - 1};
}

/// A question, as messages name it.
std::string place_of(const Example& question, const std::string& where) {
  const auto id = text_cell(question, "id");
  return id.empty() ? where : fmt::format("{}, question {}", where, id);
}

}  // namespace

std::string kind_name(Kind kind) {
  static constexpr const char* kNames[] = {"null", "short", "long", "yes", "no"};
  return kNames[size_t(kind)];
}

Question::Question(const Example& row, const std::string& where) try : id(text_cell(row, "id")) {
  question = part_of(cell_json(row, "question", where), "text", where).get<std::string>();
  const Document document(row, where);
  const auto annotations = cell_json(row, "annotations", where);
  context = document.text(0, std::ssize(document.tokens));
  const auto kinds = list_of(annotations, "yes_no_answer", where).get<std::vector<int64_t>>();
  const auto has = [&](int64_t kind) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  if (has(0) || has(1)) {
    kind = has(1) ? Kind::yes : Kind::no;
    // The evaluation looks at the first annotation that says yes or no, not for a yes among all.
    const auto first =
        std::find_if(kinds.begin(), kinds.end(), [](int64_t one) { return one == 0 || one == 1; });
    category = *first == 0 ? "no" : "yes";
    targets = {category};
    return;
  }
  targets = answers_of(annotations, document, where);
  category = targets.empty() ? "null" : "long_short";
  const auto range = short_range(annotations, where);
  const auto tokens = range ? *range : long_range(annotations, where);
  if (tokens.start == -1) {
    if (targets.empty()) targets = {"null"};
    return;
  }
  if (tokens.start < 0)
    refuse_question(where, fmt::format("an answer begins at token {}", tokens.start));
  if (tokens.end <= tokens.start) return;
  const auto first = document.without_html(tokens.start);
  const auto last = document.without_html(tokens.end) - 1;
  if (last < first) return;  // nothing but HTML
  kind = range ? Kind::short_answer : Kind::long_answer;
  start = first;
  end = last;
} catch (const json::exception& error) {
  refuse_question(where, fmt::format("a question cannot be read: {}", error.what()));
}

std::vector<Row> rows_of(const Question& question, const Tokenizer& tokenizer,
                         const Options& options, const std::string& where) {
  if (question.kind == Kind::none) return {};
  EncodeOptions encode{.truncation = false, .text_pair = question.context, .ids_only = true};
  const auto ids = tokenizer.encode(question.question, encode).ids();
  const auto separator = separator_of(tokenizer);
  const auto length = question_length(ids, separator, question, options.max_length, where);
  const bool has_span = question.kind == Kind::short_answer || question.kind == Kind::long_answer;
  auto span = has_span ? answer_tokens(question, tokenizer, length, where) : kNoSpan;
  if (has_span && std::ssize(ids) <= options.max_length)
    return {Row{ids, span.first, span.second, question.kind}};
  std::vector<Row> rows;
  const auto whole = span;
  for (auto first = length; first < std::ssize(ids);
       first += options.max_length - options.doc_stride) {
    const auto last = first + options.max_length - length;  // exclusive
    Row row{.input_ids = {ids.begin(), ids.begin() + length}, .kind = question.kind};
    row.input_ids.insert(row.input_ids.end(), ids.begin() + first,
                         ids.begin() + std::min<int64_t>(last, std::ssize(ids)));
    if (has_span) {
      if (options.label_every_part) span = whole;
      // The example goes on with the place in this part, where that in the document belongs.
      const bool is_here = span.first >= first && span.second < last;
      const auto shift = length - first;
      span = is_here ? std::pair(span.first + shift, span.second + shift) : kNoSpan;
      std::tie(row.start, row.end) = span;
      if (!is_here) row.kind = Kind::none;
    }
    rows.push_back(std::move(row));
    if (rows.back().input_ids.back() == separator) break;
  }
  return rows;
}

MapFunction row_maker(std::shared_ptr<const Tokenizer> tokenizer, const Options& options,
                      std::string where) {
  return [tokenizer = std::move(tokenizer), options,
          where = std::move(where)](const std::vector<Example>& questions) {
    std::vector<Example> made;
    for (const auto& question : questions)
      for (auto& row :
           rows_of(Question(question, place_of(question, where)), *tokenizer, options, where))
        made.push_back(Example{{"input_ids", std::move(row.input_ids)},
                               {"start_token", row.start},
                               {"end_token", row.end},
                               {"category", int64_t(row.kind)}});
    return made;
  };
}

std::shared_ptr<const Dataset> without_null_rows(const std::shared_ptr<const Dataset>& rows,
                                                 double share, int64_t seed) {
  NumpyRandomState random{uint64_t(seed)};
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < rows->size(); ++i) {
    const bool is_null = rows->get(i).at("category").integer() == int64_t(Kind::none);
    if (!is_null || random.rand() >= share) kept.push_back(i);
  }
  return rows->select(std::move(kept));
}

Batch Collator::operator()(std::vector<Example> rows) const {
  const auto count = std::ssize(rows);
  auto ids = at::full({count, max_length_}, pad_id_, torch::kLong);
  auto mask = at::zeros({count, max_length_}, torch::kLong);
  auto starts = at::zeros({count}, torch::kLong), ends = at::zeros({count}, torch::kLong),
       kinds = at::zeros({count}, torch::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const auto& row = rows[size_t(i)];
    const auto tokens = row.at("input_ids").to_tensor();
    const auto length = tokens.numel();
    if (tokens.dim() != 1 || length > max_length_)
      throw Error("G-TASK-11", ErrorKind::data,
                  fmt::format("a row has {} tokens, expected at most {}", length, max_length_),
                  "Prepare the data with this --max_length, or raise it.");
    ids[i].narrow(0, 0, length).copy_(tokens);
    mask[i].narrow(0, 0, length).fill_(1);
    starts[i] = row.at("start_token").integer();
    ends[i] = row.at("end_token").integer();
    kinds[i] = row.at("category").integer();
  }
  return Batch{{"input_ids", ids},
               {"attention_mask", mask},
               {"start_labels", starts},
               {"end_labels", ends},
               {"pooled_labels", kinds}};
}

nlohmann::json Collator::settings() const {
  return {{"pad_id", pad_id_}, {"max_length", max_length_}};
}

Collator Collator::from_settings(const nlohmann::json& settings) {
  const auto whole = [&](const char* name) {
    return settings.is_object() && settings.contains(name) && settings[name].is_number_integer();
  };
  if (!whole("pad_id") || !whole("max_length"))
    throw Error(
        "G-FN-4", ErrorKind::checkpoint,
        fmt::format("data_collator.json is {}, expected pad_id and max_length", settings.dump()),
        "The file is damaged, or belongs to another collator. Use another checkpoint.");
  return Collator(settings["pad_id"], settings["max_length"]);
}

std::pair<int64_t, int64_t> best_span(std::span<const float> starts, std::span<const float> ends,
                                      int64_t max_size) {
  constexpr size_t kCandidates = 8;
  constexpr float kForbidden = 1e8f;
  const auto best = [&](std::span<const float> scores) {
    std::vector<int64_t> order(scores.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto count = std::min(kCandidates, order.size());
    std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(count), order.end(),
                      [&](int64_t a, int64_t b) {
                        const auto x = scores[size_t(a)], y = scores[size_t(b)];
                        return x > y || (x == y && a < b);
                      });
    order.resize(count);
    return order;
  };
  const auto first = best(starts), last = best(ends);
  std::optional<float> highest;
  std::pair<int64_t, int64_t> chosen;
  for (const auto end : last)
    for (const auto start : first) {
      const bool is_wrong = end < start || end - start > max_size;
      const auto score = (ends[size_t(end)] + starts[size_t(start)]) - (is_wrong ? kForbidden : 0);
      if (highest && !(score > *highest)) continue;
      highest = score;
      chosen = {start, end};
    }
  return chosen;
}

bool matches(const std::vector<std::string>& targets, const std::string& answer) {
  const auto wanted = plain_answer(answer);
  if (wanted == "''" || wanted == "'") return false;
  std::vector<std::string> all = targets;
  for (const auto& target : targets) {
    const auto parts = spaced_parts(target);
    if (parts.size() < 2) continue;
    all.push_back(joined(std::span(parts).subspan(1)));
    all.push_back(joined(std::span(parts).first(parts.size() - 1)));
  }
  return std::any_of(all.begin(), all.end(),
                     [&](const std::string& target) { return plain_answer(target) == wanted; });
}

}  // namespace gradus::natural_questions
