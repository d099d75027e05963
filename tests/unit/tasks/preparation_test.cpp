// How the tasks prepare rows: the parts that do not need a model. The tasks themselves run in
// tests/integration/tasks_test.py.
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/tasks/task.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tasks/class_labels.h"
#include "tasks/classification_scores.h"
#include "tasks/default_config.h"
#include "tasks/language_modeling.h"
#include "tasks/text_columns.h"

namespace gradus::tasks {
namespace {

namespace fs = std::filesystem;
using Ints = Value::Ints;

class TasksFolder : public ::testing::Test {
 protected:
  TasksFolder()
      : folder(fs::temp_directory_path() / ("gradus_tasks_" + std::to_string(::getpid()))) {
    make_directory(folder);
  }
  ~TasksFolder() override { fs::remove_all(folder); }
  std::string write(const std::string& name, const std::string& text) const {
    write_file_atomically(folder / name, text);
    return (folder / name).string();
  }
  fs::path folder;
};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(TasksFolder, ARunThatCannotBeginLeavesTheCheckpointsOfTheOldOne) {
  struct Broken : Task {
    std::string name() const override { return "broken"; }
    void add_options(OptionSet&) override {}
    void check(const TrainingArguments&) const override {}
    PreparedTask prepare(const TrainingArguments&) override {
      throw Error("G-TEST-1", ErrorKind::data, "line 3 of the data cannot be read");
    }
  };
  const auto old = folder / "run" / "checkpoint-10";
  make_directory(old);
  TrainingArguments args;
  args.output_dir = (folder / "run").string();
  args.do_train = true;
  Broken task;
  EXPECT_NE(message_of([&] { run_task(task, args, /*handle_signals=*/false); }).find("[G-TASK-2]"),
            std::string::npos);
  args.overwrite_output_dir = true;
  EXPECT_NE(message_of([&] { run_task(task, args, /*handle_signals=*/false); }).find("[G-TEST-1]"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(old));
}

Split rows_of(std::vector<Example> rows) {
  return {.rows = from_examples(std::move(rows)), .where = "rows"};
}

}  // namespace

TEST(GroupTexts, CutsWhatStandsBehindEachOther) {
  const auto blocks = group_texts({{{"input_ids", Ints{1, 2, 3}}, {"mask", Ints{0, 0, 1}}},
                                   {{"input_ids", Ints{}}, {"mask", Ints{}}},
                                   {{"input_ids", Ints{4, 5, 6, 7}}, {"mask", Ints{1, 1, 1, 0}}}},
                                  3);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[1].at("input_ids").ints(), (Ints{4, 5, 6}));
  EXPECT_EQ(blocks[0].at("mask").ints(), (Ints{0, 0, 1}));
  EXPECT_TRUE(group_texts({{{"input_ids", Ints{1, 2}}}}, 3).empty());
  EXPECT_TRUE(group_texts({}, 3).empty());
}

TEST_F(TasksFolder, ValidationShareIsRoundedAsPythonDoes) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += std::to_string(i) + "\n";
  const DataFlags data{.train_file = write("train.txt", text)};
  TrainingArguments args;
  args.do_train = args.do_eval = true;
  const auto at = [&](int64_t percentage) {
    return open_language_splits(args, data, {.validation_split_percentage = percentage}, {});
  };
  EXPECT_EQ(at(5).validation.rows->size(), 2);   // 1.5 goes to the even 2
  EXPECT_EQ(at(15).validation.rows->size(), 4);  // 4.5 too
  EXPECT_EQ(at(15).train.rows->size(), 26);
  EXPECT_EQ(at(15).train.rows->get(0).at("text").str(), "4");
  EXPECT_NE(at(15).train.key, at(5).train.key);
  EXPECT_NE(message_of([&] { at(1); }).find("1 percent of the 30 rows"), std::string::npos);
}

TEST_F(TasksFolder, CacheFollowsContentsAndSettings) {
  const ModelFlags model{.cache_dir = (folder / "cache").string()};
  int calls = 0;
  const auto prepare = [&](const std::string& file, const std::string& settings) {
    const auto split = open_split({}, file, "train");
    return prepare_split(
        split, [&](std::vector<Example> rows) { return ++calls, rows; },
        {.task = "t", .settings = settings, .wanted = "a row"}, model, {}, false);
  };
  const auto file = write("a.txt", "one\ntwo\n");
  EXPECT_EQ(prepare(file, "x").rows->size(), 2);
  prepare(write("b.txt", "one\ntwo\n"), "x");
  EXPECT_EQ(calls, arrow_available() ? 1 : 2);  // another name, the same contents
  calls = 0;
  prepare(file, "y");
  write("a.txt", "one\n2wo\n");
  EXPECT_EQ(prepare(file, "x").rows->get(1).at("text").str(), "2wo");
  EXPECT_EQ(calls, 2);
  const auto nothing = [&] {
    prepare_split(
        open_split({}, file, "train"), [](std::vector<Example>) { return std::vector<Example>(); },
        {.task = "t", .settings = "n", .wanted = "a row"}, model, {}, false);
  };
  for (int i = 0; i < 2; ++i)
    EXPECT_NE(message_of(nothing).find("leaves no row: expected a row [G-TASK-10]"),
              std::string::npos)
        << message_of(nothing);
}

TEST_F(TasksFolder, FormatAndBadRows) {
  const auto file = write("rows.log", "{\"text\": \"a\"}\nnot a row\n{\"text\": \"b\"}\n");
  EXPECT_NE(message_of([&] { open_split({}, file, "train"); }).find("--format"), std::string::npos);
  const auto whole = open_split({.format = "text"}, file, "train"),
             some = open_split({.format = "jsonl", .skip_bad_rows = 1}, file, "train");
  EXPECT_EQ(whole.rows->size(), 3);
  EXPECT_EQ(some.rows->get(1).at("text").str(), "b");
  EXPECT_NE(whole.key, some.key);  // prepared rows of one are not taken for the other's
  EXPECT_NE(message_of([&] { open_split({.format = "jsonl"}, file, "train"); }).find("line 2"),
            std::string::npos);
}

TEST_F(TasksFolder, SplitsOfAFolderAreFoundByName) {
  make_directory(folder / "set/data");
  write("set/data/train-00000-of-00002.jsonl", "{\"text\": \"a\"}\n");
  write("set/data/train-00001-of-00002.jsonl", "{\"text\": \"b\"}\n");
  write("set/dev.jsonl", "{\"text\": \"c\"}\n");
  write("set/trains.jsonl", "{\"text\": \"no split\"}\n");
  write("set/README.md", "not data");
  const DataFlags data{.dataset_name = (folder / "set").string()};
  EXPECT_EQ(open_split(data, std::nullopt, "train").rows->size(), 2);
  EXPECT_EQ(open_split(data, std::nullopt, "validation").rows->get(0).at("text").str(), "c");
  EXPECT_FALSE(open_split(data, std::nullopt, "test"));
  make_directory(folder / "plain");
  write("plain/some.jsonl", "{\"text\": \"a\"}\n");
  const DataFlags plain{.dataset_name = (folder / "plain").string()};
  EXPECT_EQ(open_split(plain, std::nullopt, "train").rows->size(), 1);
  EXPECT_FALSE(open_split(plain, std::nullopt, "validation"));
}

TEST(DefaultConfig, OverridesKeepTheType) {
  const auto config = with_overrides(default_config("gpt2"),
                                     "n_embd=64,resid_pdrop=0.5,activation_function=relu,scale_"
                                     "attn_weights=no,num_hidden_layers=3");
  EXPECT_EQ(config["n_embd"], 64);
  EXPECT_EQ(config["n_layer"], 3);
  EXPECT_EQ(config["resid_pdrop"], 0.5);
  EXPECT_EQ(config["activation_function"], "relu");
  EXPECT_EQ(config["scale_attn_weights"], false);
  EXPECT_NE(message_of([] {
              with_overrides(default_config("gpt2"), "n_embd=1.5");
            }).find("must be an integer, received \"1.5\""),
            std::string::npos);
  EXPECT_NE(message_of([] {
              with_overrides(default_config("gpt2"), "n_inner=4");
            }).find("cannot be replaced"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              with_overrides(default_config("gpt2"), "n_embd");
            }).find("expected key=value"),
            std::string::npos);
  EXPECT_EQ(max_positions({{"model_type", "gpt2"}}), 1024);
  EXPECT_EQ(max_positions({{"model_type", "llama"}, {"max_position_embeddings", 77}}), 77);
}

TEST(ClassLabels, TargetsAndNames) {
  const ClassLabels labels{.names = {"1", "10", "2"}};
  EXPECT_EQ(labels.target(int64_t{10}, "label", "x").integer(), 1);
  EXPECT_EQ(labels.target(int64_t{-1}, "label", "x").integer(), -1);
  EXPECT_EQ(
      (ClassLabels{.names = {"LABEL_0", "LABEL_1"}}.target(int64_t{1}, "label", "x").integer()),
      1);  // of a model saved without names
  EXPECT_EQ((ClassLabels{.names = {"-1", "1"}}.target("-1", "label", "x").integer()), 0);
  EXPECT_NE(
      message_of([&] {
        labels.target("7", "label", "x.csv");
      }).find("x.csv: column 'label' holds the label '7', expected one of the 3 labels 1, 10, 2"),
      std::string::npos);
  EXPECT_NE(message_of([&] { labels.target(nullptr, "label", "x.csv"); }).find("null"),
            std::string::npos);
  const ClassLabels several{.problem = Problem::multi_label, .names = {"a", "b"}};
  EXPECT_EQ(several.target(Value::Strings{"b"}, "label", "x").floats(), (Value::Floats{0, 1}));
  EXPECT_EQ(several.target(Value::Ints{}, "label", "x").floats(), (Value::Floats{0, 0}));
  EXPECT_EQ(
      labels_in(rows_of({{{"label", int64_t{2}}}, {{"label", int64_t{10}}}, {{"label", true}}}),
                "label"),
      (std::set<std::string>{"10", "2", "True"}));
  EXPECT_NE(message_of([] {
              labels_in(rows_of({{{"label", Value::Floats{0, 1}}}}), "label");
            }).find("rows: column 'label' holds list of float, expected a list of labels"),
            std::string::npos);
  EXPECT_EQ(labels.config_changes()["label2id"]["2"], 2);
  EXPECT_FALSE(are_own_names({"LABEL_0", "LABEL_1"}));
  EXPECT_TRUE(are_own_names({"LABEL_0", "b"}));
}

TEST(TextColumns, AreFoundInTheScriptsOrder) {
  const auto of = [](std::vector<Example> rows, TextColumnFlags flags) {
    return text_columns(rows_of(std::move(rows)), flags);
  };
  const Example row = {{"id", "x"}, {"sentence2", "b"}, {"sentence1", "a"}, {"label", int64_t{1}}};
  EXPECT_EQ(of({row}, {.others = {"label"}}).second, "sentence2");
  EXPECT_EQ(of({{{"id", "x"}, {"sentence", "a"}}}, {}).first,
            (std::vector<std::string>{"sentence"}));
  const auto joined = of({row}, {.names = "sentence1,id", .delimiter = "/"});
  EXPECT_EQ(joined.first_text(row, "x"), "a/x");
  EXPECT_NE(message_of([&] { of({row}, {.names = "sentense1"}); }).find("sentence1"),
            std::string::npos);
}

TEST(ClassificationScores, NamesFitTheProblem) {
  const EvalPrediction prediction{
      .prediction_parts = {torch::tensor({{0.1, 0.9}, {0.8, 0.2}, {0.3, 0.4}})},
      .label_parts = {torch::tensor({1, 0, 0})}};
  const auto scores = classification_scores(prediction, Problem::single_label, {"accuracy", "f1"});
  EXPECT_NEAR(scores.at("accuracy"), 2.0 / 3, 1e-12);
  EXPECT_NEAR(scores.at("f1"), 2.0 / 3, 1e-12);
  EXPECT_NEAR(scores.at("combined_score"), 2.0 / 3, 1e-12);
  EXPECT_NE(message_of([] {
              check_metric("mse", Problem::single_label, 2);
            }).find("they are classes, not numbers"),
            std::string::npos);
  EXPECT_NE(message_of([] { check_metric("f1", Problem::single_label, 3); }).find("f1_macro"),
            std::string::npos);
}

TEST(ClassLabels, NumbersOfAClassLabelColumnMeanItsNames) {
  const ClassLabels labels{.names = {"good", "bad"}};
  const std::vector<std::string> stored = {"bad", "good"};
  EXPECT_EQ(labels.target(int64_t{0}, "label", "here", stored).integer(), 1);
  EXPECT_EQ(labels.target(int64_t{1}, "label", "here", stored).integer(), 0);
  EXPECT_EQ(labels.target(int64_t{-1}, "label", "here", stored).integer(), -1);
  EXPECT_EQ(labels.target(std::string("bad"), "label", "here", stored).integer(), 1);
  EXPECT_NE(message_of([&] {
              labels.target(int64_t{2}, "label", "here", stored);
            }).find("the label '2', expected one of the 2 labels good, bad"),
            std::string::npos);
  const ClassLabels several{.problem = Problem::multi_label, .names = {"a", "b", "c"}};
  EXPECT_EQ(several.target(Ints{2, 0}, "label", "here", {"a", "b", "c"}).floats(),
            (Value::Floats{1, 0, 1}));
  const ClassLabels unnamed{.names = {"LABEL_0", "LABEL_1"}};
  EXPECT_EQ(unnamed.target(int64_t{1}, "label", "here", stored).integer(), 1)
      << "a model without names takes numbers as they are";
}

}  // namespace gradus::tasks
