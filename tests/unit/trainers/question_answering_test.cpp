// Numbers: tests/differential/text_tasks_test.py. Here what needs no peer.
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/models/auto_model.h>
#include <gradus/trainers/question_answering.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "../../silent_log.h"
#include "../error_of.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::shared_ptr<Dataset> one_question(const std::string& context) {
  return from_examples({Example{{"id", "q"}, {"context", context}}});
}

// A feature whose first token is special and whose others are the words "äb", "cd", "e".
std::shared_ptr<Dataset> one_feature(bool nested = false) {
  const json places = json::array({nullptr, {0, 2}, {3, 5}, {6, 7}});
  return from_examples(
      {Example{{"example_id", "q"},
               {"offset_mapping",
                nested ? Value::nested(places) : Value(Value::Ints{-1, -1, 0, 2, 3, 5, 6, 7})}}});
}

std::string answer(const std::vector<float>& start, const std::vector<float>& end,
                   const PostProcessOptions& options = {}, bool nested = false) {
  return postprocess_qa_predictions(
             *one_question("äb cd e"), *one_feature(nested),
             {torch::tensor(start).unsqueeze(0), torch::tensor(end).unsqueeze(0)}, options)
      .front();
}

}  // namespace

TEST(Answers, AreTheBestPairOfStartAndEnd) {
  EXPECT_EQ(answer({9, 1, 3, 0}, {9, 2, 1, 2.5}), "cd e");
  EXPECT_EQ(answer({9, 1, 3, 0}, {9, 2, 1, 2.5}, {}, true), "cd e");
  EXPECT_EQ(answer({9, 1, 3, 0}, {9, 2, 1, 2.5}, {.max_answer_length = 1}), "cd");
  EXPECT_EQ(answer({0, 5, 1, 1}, {0, 4, 1, 1}), "äb");  // counted in characters, not bytes
  EXPECT_EQ(answer({9, 1, 1, 1}, {9, 0, 0, 0}, {.n_best_size = 1}), "empty");
}

TEST(Answers, NoneWinsByTheThreshold) {
  const PostProcessOptions strict{.version_2_with_negative = true};
  EXPECT_EQ(answer({2, 1, 0, 0}, {2, 1, 0, 0}, strict), "");
  EXPECT_EQ(answer({0.5, 1, 0, 0}, {0.5, 1, 0, 0}, strict), "äb");
  EXPECT_EQ(answer({2, 1, 0, 0}, {2, 1, 0, 0},
                   {.version_2_with_negative = true, .null_score_diff_threshold = 2.5}),
            "äb");
}

TEST(Answers, FilesHaveWhatUtilsQaWrites) {
  const auto folder = fs::temp_directory_path() / ("gradus-answers-" + std::to_string(getpid()));
  fs::create_directories(folder);
  answer({2, 1, 0, 0}, {2, 1, 0, 0},
         {.version_2_with_negative = true, .output_dir = folder, .prefix = "eval"});
  EXPECT_EQ(read_file(folder / "eval_predictions.json"), "{\n    \"q\": \"\"\n}\n");
  EXPECT_EQ(read_file(folder / "eval_null_odds.json"), "{\n    \"q\": 2.0\n}\n");
  const auto nbest = read_file(folder / "eval_nbest_predictions.json");
  EXPECT_TRUE(
      nbest.starts_with("{\n    \"q\": [\n        {\n            \"start_logit\": 2.0,\n"
                        "            \"end_logit\": 2.0,\n            \"text\": \"\",\n"
                        "            \"probability\": 0."))
      << nbest;
  EXPECT_NE(nbest.find("\\u00e4b"), std::string::npos);
  answer({2, 1, 0, 0}, {2, 1, 0, 0}, {.output_dir = folder});
  EXPECT_TRUE(fs::exists(folder / "predictions.json"));
  EXPECT_FALSE(fs::exists(folder / "null_odds.json"));
  fs::remove_all(folder);
}

TEST(Answers, LogitsOfOtherFeaturesAreRefused) {
  const auto logits = torch::zeros({2, 4});
  expect_error(
      [&] { postprocess_qa_predictions(*one_question("a"), *one_feature(), {logits, logits}); },
      "G-TASK-16", {"2 predictions of 2 rows for 1 features"});
  expect_error([&] { postprocess_qa_predictions(*one_question("a"), *one_feature(), {logits}); },
               "G-TASK-16", {"1 predictions"});
}

TEST(QuestionAnswering, ScoresAnswersAfterTheLoop) {
  set_log_sink(std::make_shared<testing::SilentLog>());
  const auto folder = fs::temp_directory_path() / ("gradus-qa-" + std::to_string(getpid()));
  const auto model =
      model_from_config(ModelTask::question_answering, {{"model_type", "bert"},
                                                        {"vocab_size", 20},
                                                        {"hidden_size", 8},
                                                        {"intermediate_size", 12},
                                                        {"num_hidden_layers", 1},
                                                        {"num_attention_heads", 2},
                                                        {"max_position_embeddings", 8}});
  std::vector<Example> rows;
  for (int64_t i = 0; i < 5; ++i)
    rows.push_back({{"input_ids", Value::Ints{i + 1, 2, 3, 4}}, {"example_id", i}});
  const auto features = from_examples(rows);
  const auto examples = from_examples({Example{{"id", 0}}, Example{{"id", 1}}});
  std::vector<std::string> stages;
  QuestionAnsweringTrainer trainer(
      {.model = model,
       .args = {.output_dir = folder.string(), .disable_tqdm = true, .use_cpu = true},
       .eval_dataset = features,
       .compute_metrics =
           [](const AnswerPrediction& answers) {
             return Metrics{{"answers", double(answers.predictions.size())}, {"eval_own", 1.0}};
           },
       .eval_examples = examples,
       .post_process_function =
           [&](const Dataset& questions, const Dataset& given, const TensorList& predictions,
               const std::string& stage) {
             stages.push_back(stage);
             EXPECT_EQ(given.size(), 5);
             EXPECT_EQ(predictions.size(), 2u);
             EXPECT_EQ(predictions[0].size(0), 5);
             AnswerPrediction answers;
             answers.predictions.resize(size_t(questions.size()));
             return answers;
           }});
  const auto metrics = trainer.evaluate();
  EXPECT_EQ(metrics.at("eval_answers"), 2);
  EXPECT_EQ(metrics.at("eval_own"), 1);
  EXPECT_TRUE(metrics.contains("eval_runtime"));
  EXPECT_FALSE(metrics.contains("eval_loss"));  // without positions there is none
  const auto output = trainer.predict(features, features);
  EXPECT_EQ(output.metrics.at("test_answers"), 5);
  EXPECT_EQ(output.prediction_parts.size(), 2u);
  EXPECT_EQ(stages, (std::vector<std::string>{"eval", "predict"}));
  EXPECT_FALSE(trainer.predict(features).metrics.contains("test_answers"));  // of no questions
  fs::remove_all(folder);
  set_log_sink(nullptr);
}

TEST(QuestionAnswering, WrittenAnswersAreGeneratedTokens) {
  set_log_sink(std::make_shared<testing::SilentLog>());
  const auto folder = fs::temp_directory_path() / ("gradus-qa2-" + std::to_string(getpid()));
  const auto model = model_from_config(ModelTask::seq2seq_lm, {{"model_type", "t5"},
                                                               {"vocab_size", 20},
                                                               {"d_model", 8},
                                                               {"d_kv", 4},
                                                               {"d_ff", 12},
                                                               {"num_layers", 1},
                                                               {"num_heads", 2},
                                                               {"pad_token_id", 0},
                                                               {"eos_token_id", 19},
                                                               {"decoder_start_token_id", 2}});
  model->generation_config.options.max_length = 4;
  std::vector<Example> rows;
  for (int64_t i = 0; i < 3; ++i)
    rows.push_back({{"input_ids", Value::Ints{i + 1, 2, 3}}, {"labels", Value::Ints{3, 19}}});
  const auto features = from_examples(rows);
  std::map<std::string, torch::Tensor> received;
  QuestionAnsweringSeq2SeqTrainer trainer(
      {.model = model,
       .args = {.output_dir = folder.string(),
                .disable_tqdm = true,
                .use_cpu = true,
                .predict_with_generate = true,
                .generation_max_length = 7},
       .eval_dataset = features,
       .compute_metrics = [](const AnswerPrediction&) { return Metrics{{"f1", 0.5}}; },
       .eval_examples = features,
       .post_process_function =
           [&](const Dataset&, const Dataset&, const TensorList& predictions,
               const std::string& stage) {
             received[stage] = predictions.at(0);
             return AnswerPrediction();
           }});
  const auto metrics = trainer.evaluate();
  EXPECT_EQ(metrics.at("eval_f1"), 0.5);
  EXPECT_TRUE(metrics.contains("eval_loss"));
  EXPECT_EQ(received["eval"].sizes(), (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(received["eval"].dtype(), torch::kLong);
  const auto output = trainer.predict(features, features);
  EXPECT_EQ(output.metrics.at("test_f1"), 0.5);
  EXPECT_EQ(received["predict"].size(1), 4);  // as the model says, not the arguments
  trainer.predict(features, features, {}, "test", {.max_length = 6});
  EXPECT_EQ(received["predict"].size(1), 6);
  EXPECT_EQ(trainer.evaluate({}, {}, "eval", {.max_length = 9})["eval_f1"], 0.5);
  EXPECT_EQ(received["eval"].size(1), 9);
  fs::remove_all(folder);
  set_log_sink(nullptr);
}

}  // namespace gradus
