// Rows, spans and matches against the Flax example on natural questions; see
// tests/parity/tasks/make_natural_questions.py.
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/tasks/natural_questions.h>
#include <gtest/gtest.h>

#include "../error_of.h"

namespace gradus::natural_questions {
namespace {

using nlohmann::json;

const json& reference() {
  static const json document =
      read_json(GRADUS_SOURCE_DIR "/tests/parity/tasks/natural_questions.json");
  return document;
}

Example question_row(const json& question) {
  return Example{{"id", question["id"].get<std::string>()},
                 {"question", Value::nested(question["question"])},
                 {"document", Value::nested(question["document"])},
                 {"annotations", Value::nested(question["annotations"])}};
}

std::shared_ptr<const Tokenizer> words() {
  return Tokenizer::from_pretrained(GRADUS_SOURCE_DIR "/tests/parity/text/fixtures/wordpiece");
}

Options reference_options() {
  return {.max_length = reference()["max_length"], .doc_stride = reference()["doc_stride"]};
}

TEST(NaturalQuestions, RowsAreThoseOfTheExample) {
  std::vector<Example> questions;
  for (const auto& question : reference()["questions"]) questions.push_back(question_row(question));
  const auto all =
      map_rows(from_examples(questions), row_maker(words(), reference_options(), "questions"),
               {.batch_size = 7, .description = ""});
  const auto rows = without_null_rows(all, 0.6, reference()["seed"]);
  const auto& expected = reference()["rows"];
  ASSERT_EQ(rows->size(), std::ssize(expected));
  for (int64_t i = 0; i < rows->size(); ++i) {
    const auto row = rows->get(i);
    const auto& wanted = expected[size_t(i)];
    EXPECT_EQ(row.at("input_ids").ints(), wanted["input_ids"].get<std::vector<int64_t>>()) << i;
    EXPECT_EQ(row.at("start_token").integer(), wanted["start_token"]) << i;
    EXPECT_EQ(row.at("end_token").integer(), wanted["end_token"]) << i;
    EXPECT_EQ(row.at("category").integer(), wanted["category"]) << i;
  }
}

TEST(NaturalQuestions, TargetsAreThoseOfTheExample) {
  for (size_t i = 0; i < reference()["questions"].size(); ++i) {
    const Question question(question_row(reference()["questions"][i]), "questions");
    const auto& wanted = reference()["formatted"][i];
    EXPECT_EQ(wanted["context"], question.context) << i;
    EXPECT_EQ(wanted["category"], question.category) << i;
    const auto sorted = [](std::vector<std::string> texts) {
      std::sort(texts.begin(), texts.end());
      return texts;
    };
    EXPECT_EQ(sorted(question.targets), sorted(wanted["targets"].get<std::vector<std::string>>()))
        << i;
  }
}

TEST(NaturalQuestions, SpansAndMatchesAreThoseOfTheExample) {
  for (const auto& each : reference()["scores"]) {
    const auto starts = each["starts"].get<std::vector<float>>();
    const auto ends = each["ends"].get<std::vector<float>>();
    const auto [start, end] = best_span(starts, ends, each["most"]);
    EXPECT_EQ(start, each["span"][0]) << each;
    EXPECT_EQ(end, each["span"][1]) << each;
  }
  for (const auto& each : reference()["matches"])
    EXPECT_EQ(matches(each["targets"].get<std::vector<std::string>>(), each["answer"]),
              each["match"].get<bool>())
        << each;
}

/// A question whose answer is "paris", at place 30 of a document of 60 words.
json row_about_a_later_word() {
  std::vector<std::string> tokens(60, "the");
  tokens[30] = "paris";
  return {{"id", "7"},
          {"question", {{"text", "a model"}}},
          {"document", {{"tokens", {{"token", tokens}, {"is_html", std::vector<bool>(60)}}}}},
          {"annotations",
           {{"yes_no_answer", {-1}},
            {"short_answers",
             json::array({{{"start_token", {30}}, {"end_token", {31}}, {"text", {"paris"}}}})},
            {"long_answer", json::array({{{"start_token", 20}, {"end_token", 40}}})}}}};
}

Question read_question(const json& row) { return Question(question_row(row), "train.jsonl"); }

TEST(NaturalQuestions, EveryPartCanBeLabelled) {
  const auto tokenizer = words();
  const auto question = read_question(row_about_a_later_word());
  EXPECT_EQ(question.start, 30);
  EXPECT_EQ(question.end, 30);
  Options options{.max_length = 24, .doc_stride = 12};
  for (const auto& row : rows_of(question, *tokenizer, options, "rows"))
    EXPECT_EQ(row.kind, Kind::none);  // as the example: the first part has no answer
  options.label_every_part = true;
  int labelled = 0;
  for (const auto& row : rows_of(question, *tokenizer, options, "rows")) {
    EXPECT_LE(std::ssize(row.input_ids), 24);
    if (row.kind == Kind::none) continue;
    ++labelled;
    const std::vector<int64_t> answer(row.input_ids.begin() + row.start,
                                      row.input_ids.begin() + row.end + 1);
    EXPECT_EQ(tokenizer->decode(answer), "paris");
  }
  EXPECT_GE(labelled, 1);
}

TEST(NaturalQuestions, AnAnswerOfHtmlAloneGivesNoRow) {
  auto row = row_about_a_later_word();
  row["document"]["tokens"]["is_html"][30] = true;
  const auto question = read_question(row);
  EXPECT_EQ(question.kind, Kind::none);
  EXPECT_TRUE(rows_of(question, *words(), {}, "rows").empty());
}

TEST(NaturalQuestions, WhatIsWrongIsNamed) {
  auto row = row_about_a_later_word();
  row["annotations"].erase("short_answers");
  EXPECT_EQ(message_of("G-TASK-11", [&] { read_question(row); }),
            "train.jsonl: a question has no 'short_answers'");
  row = row_about_a_later_word();
  row["annotations"]["short_answers"][0]["start_token"] = {-5};
  EXPECT_EQ(message_of("G-TASK-11", [&] { read_question(row); }),
            "train.jsonl: an answer begins at token -5");
  row = row_about_a_later_word();
  row["annotations"]["short_answers"][0]["end_token"] = {600};
  EXPECT_EQ(message_of("G-TASK-11", [&] { rows_of(read_question(row), *words(), {}, "x"); }),
            "x: the answer of question 7 is outside its document");
  row["document"]["tokens"]["is_html"].erase(0);
  EXPECT_EQ(message_of("G-TASK-11", [&] { read_question(row); }),
            "train.jsonl: 'token' and 'is_html' of a document differ in length");
  EXPECT_EQ(message_of("G-TASK-11", [] { Question(Example{{"id", "1"}}, "x"); }),
            "x: a question has no 'question'");
  const auto make = row_maker(words(), {}, "x");
  EXPECT_EQ(message_of("G-TASK-11", [&] { make({Example{{"id", "q7"}}}); }),
            "x, question q7: a question has no 'question'");
  EXPECT_EQ(message_of("G-TASK-11",
                       [] {
                         rows_of(read_question(row_about_a_later_word()), *words(),
                                 {.max_length = 4}, "x");
                       }),
            "x: the question 7 has 7 tokens, which leaves no room for its document in a row of 4");
}

TEST(NaturalQuestions, CollatorPadsAllRowsAndKeepsItsSettings) {
  const Collator collator(9, 6);
  const auto batch = collator(
      {Example{{"input_ids", Value::Ints{1, 2, 3}},
               {"start_token", -100},
               {"end_token", -100},
               {"category", 3}},
       Example{
           {"input_ids", Value::Ints{4}}, {"start_token", 0}, {"end_token", 0}, {"category", 1}}});
  EXPECT_EQ(batch["input_ids"].sizes(), at::IntArrayRef({2, 6}));
  EXPECT_EQ(batch["input_ids"][1][5].item<int64_t>(), 9);
  EXPECT_EQ(batch["attention_mask"].sum().item<int64_t>(), 4);
  EXPECT_EQ(batch["start_labels"][0].item<int64_t>(), -100);
  EXPECT_EQ(batch["pooled_labels"][0].item<int64_t>(), 3);
  EXPECT_EQ(Collator::from_settings(collator.settings()).settings(), collator.settings());
  EXPECT_EQ(message_of("G-FN-4", [] { Collator::from_settings({{"pad_id", "x"}}); }),
            R"(data_collator.json is {"pad_id":"x"}, expected pad_id and max_length)");
  const Example long_row{
      {"input_ids", Value::Ints(7, 1)}, {"start_token", 0}, {"end_token", 0}, {"category", 0}};
  EXPECT_EQ(message_of("G-TASK-11", [&] { collator({long_row}); }),
            "a row has 7 tokens, expected at most 6");
}

}  // namespace
}  // namespace gradus::natural_questions
