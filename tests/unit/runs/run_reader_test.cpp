#include "runs/run_reader.h"

#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "../../silent_log.h"
#include "runs/log_line.h"
#include "runs/run_log_writer.h"

namespace gradus::runs {
namespace {

namespace fs = std::filesystem;

class RunReading : public ::testing::Test {
 protected:
  RunReading() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() /
              ("gradus-runs-" + std::to_string(::getpid()) + "-" + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~RunReading() override { fs::remove_all(folder_); }

  void append(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::app) << text;
  }

  static std::vector<double> values(const RunReader& reader, const std::string& key) {
    std::vector<double> found;
    if (const auto* series = reader.data().find(key))
      for (size_t i = 0; i < series->size(); ++i) found.push_back(series->value(i));
    return found;
  }

  fs::path folder_;
};

std::vector<std::pair<std::string, double>> numbers(std::string_view line, bool& understood) {
  std::vector<std::pair<std::string, double>> found;
  understood = read_log_line(line, [&](auto key, double value) { found.emplace_back(key, value); });
  return found;
}

TEST(LogLine, ReadsWhatAnyWriterWrites) {
  bool good = false;
  auto found = numbers(R"({"step": 8, "loss":0.25,"x": -1e-05, "big": 1E+300, "ok": true})", good);
  EXPECT_TRUE(good);
  ASSERT_EQ(found.size(), 5U);
  EXPECT_EQ(found[1], (std::pair<std::string, double>("loss", 0.25)));
  EXPECT_EQ(found[2].second, -1e-05);
  EXPECT_EQ(found[4].second, 1);
  found = numbers(R"({"a": NaN, "b": Infinity, "c": -Infinity, "t": "x\"y", "n": null})", good);
  EXPECT_TRUE(good);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_TRUE(std::isnan(found[0].second));
  EXPECT_EQ(found[2].second, -INFINITY);
  found = numbers(R"({"tiny": 1e-400, "huge": -1e400})", good);
  EXPECT_TRUE(good);
  EXPECT_EQ(found[0].second, 0);
  EXPECT_EQ(found[1].second, -INFINITY);
}

TEST(LogLine, SaysWhatItDoesNotUnderstand) {
  bool good = true;
  for (const auto* line :
       {"", "{", "[1]", R"({"a": [1]})", R"({"a": {"b": 1}})", R"({"a" 1})", R"({"a": 1)",
        R"({"a": nul})", R"({"a": x})", R"({"a)", R"({"\u0061": 1})"}) {
    numbers(line, good);
    EXPECT_FALSE(good) << line;
  }
}

TEST_F(RunReading, FollowsALogThatGrows) {
  append("log.jsonl", "{\"step\": 1, \"loss\": 3.0}\n{\"step\": 2, \"lo");
  RunReader reader(folder_);
  EXPECT_TRUE(reader.poll());
  EXPECT_EQ(values(reader, "loss"), (std::vector<double>{3}));
  EXPECT_FALSE(reader.poll()) << "half a line is left for later";
  append("log.jsonl", "ss\": 2.5}\n{\"step\": 2, \"eval_loss\": 2.75}\n");
  EXPECT_TRUE(reader.poll());
  EXPECT_EQ(values(reader, "loss"), (std::vector<double>{3, 2.5}));
  EXPECT_EQ(values(reader, "eval_loss"), (std::vector<double>{2.75}));
  EXPECT_EQ(reader.data().step, 2);
}

TEST_F(RunReading, StartsOverWhenTheFileWasReplaced) {
  append("log.jsonl", "{\"step\": 1, \"loss\": 3.0}\n{\"step\": 2, \"loss\": 2.0}\n");
  RunReader reader(folder_);
  reader.poll();
  // Cut and written again, longer than before.
  std::ofstream(folder_ / "log.jsonl") << "{\"step\": 1, \"loss\": 9.0}\n{\"step\": 2, \"loss\": "
                                          "8.0}\n{\"step\": 3, \"loss\": 7.0}\n";
  EXPECT_TRUE(reader.poll());
  EXPECT_EQ(values(reader, "loss"), (std::vector<double>{9, 8, 7}));
  fs::remove(folder_ / "log.jsonl");
  EXPECT_FALSE(reader.poll()) << "what was read stays";
  EXPECT_EQ(values(reader, "loss").size(), 3U);
}

TEST_F(RunReading, KeepsWhatWasReadOfAFolderThatIsGone) {
  const auto run = folder_ / "run";
  fs::create_directories(run);
  std::ofstream(run / "log.jsonl") << "{\"step\": 1, \"loss\": 3.0}\n";
  RunReader of_folder(run), of_file(run / "log.jsonl");
  of_folder.poll();
  of_file.poll();
  fs::remove_all(run);
  std::ofstream(run) << "a file in its place";
  for (auto* reader : {&of_folder, &of_file}) {
    EXPECT_FALSE(reader->poll());
    EXPECT_EQ(values(*reader, "loss"), (std::vector<double>{3}));
  }
  fs::remove(run);
  fs::create_directories(run);
  std::ofstream(run / "log.jsonl") << "{\"step\": 1, \"loss\": 5.0}\n";
  for (auto* reader : {&of_folder, &of_file}) {
    EXPECT_TRUE(reader->poll());
    EXPECT_EQ(values(*reader, "loss"), (std::vector<double>{5}));
  }
}

TEST_F(RunReading, TakesNoStepThatIsNone) {
  append("run_log.jsonl",
         "{\"event\": \"begin\", \"step\": -1e300, \"max_steps\": Infinity, \"pid\": 1e300}\n"
         "{\"step\": 7, \"loss\": 1}\n"
         "{\"event\": \"progress\", \"step\": 1e300, \"steps_per_second\": 2}\n"
         "{\"step\": NaN, \"list\": [], \"other\": 2}\n");
  RunReader reader(folder_);
  EXPECT_TRUE(reader.poll());
  EXPECT_EQ(reader.data().step, 7);
  EXPECT_EQ(reader.data().max_steps, 0);
  EXPECT_EQ(reader.data().find("other")->step(0), 7);
}

TEST_F(RunReading, ReadsTablesAndStates) {
  append("log.csv", "step,loss,\"eval,x\"\n1,3,\n2,,0.5\n");
  RunReader table(folder_);
  table.poll();
  EXPECT_EQ(values(table, "loss"), (std::vector<double>{3}));
  EXPECT_EQ(values(table, "eval,x"), (std::vector<double>{0.5}));

  const auto run = folder_ / "python";
  fs::create_directories(run / "checkpoint-4");
  std::ofstream(run / "checkpoint-4" / "trainer_state.json")
      << R"({"global_step": 4, "max_steps": 9, "epoch": 0.5, "best_metric": 1.5,
             "best_model_checkpoint": "x/checkpoint-2",
             "log_history": [{"step": 2, "loss": NaN}, {"step": 4, "loss": 1.0}]})";
  RunReader state(run);
  EXPECT_TRUE(state.poll());
  EXPECT_FALSE(state.poll());
  EXPECT_EQ(values(state, "loss").back(), 1);
  EXPECT_EQ(state.data().max_steps, 9);
  EXPECT_EQ(state.data().best_checkpoint, "checkpoint-2");
  EXPECT_EQ(status_of(state.data(), clock_now()), RunStatus::unknown);
}

TEST_F(RunReading, PassesOverWhatIsNoLog) {
  append("log.jsonl",
         "garbage\n\n[1, 2]\n{\"event\": broken}\n{\"step\": 1e300, \"loss\": 1}\n"
         "{\"step\": 3, \"list\": [1], \"loss\": 2.0}\n");
  RunReader reader(folder_);
  EXPECT_TRUE(reader.poll());
  EXPECT_EQ(values(reader, "loss"), (std::vector<double>{1, 2}));
}

TEST_F(RunReading, CutsLongTextsShort) {
  const std::string end(3 << 20, 'y'), begin(3999, 'x');
  append("run_log.jsonl", R"({"event": "message", "text": ")" + begin + "ä" + end + "\"}\n");
  append("run_log.jsonl", R"({"step": 1, "loss": 1, "x": ")" + end + "\"}\n");
  RunReader reader(folder_);
  EXPECT_TRUE(reader.poll());
  ASSERT_EQ(reader.data().messages.size(), 2u);
  EXPECT_EQ(reader.data().messages[0].text, begin + " …");
  EXPECT_EQ(reader.data().messages[1].text.size(), 4000u + 4);
  EXPECT_EQ(values(reader, "loss"), (std::vector<double>{1}));
}

TEST_F(RunReading, ReadsBackWhatTheWriterWrote) {
  RunLogWriter writer(folder_ / kRunLogFile);
  writer.begin(
      {.settings = {{"learning_rate", 0.1}}, .model = nullptr, .step = 0, .max_steps = 100});
  RunReader reader(folder_);
  reader.poll();
  EXPECT_EQ(status_of(reader.data(), clock_now()), RunStatus::running) << "this process is alive";
  EXPECT_EQ(reader.data().settings, (nlohmann::json{{"learning_rate", 0.1}}));
  for (int64_t step = 10; step <= 50; step += 10)
    writer.entry({{"loss", 5.0 / double(step)}, {"epoch", 0.5}}, step);
  writer.message("warning", "bell \a");
  writer.best(0.25, "checkpoint-40");
  writer.end("failed", "no memory");
  reader.poll();
  EXPECT_EQ(values(reader, "loss").size(), 5U);
  EXPECT_FALSE(reader.data().series.contains("epoch"));
  EXPECT_EQ(reader.data().epoch, 0.5);
  EXPECT_EQ(reader.data().best_checkpoint, "checkpoint-40");
  EXPECT_EQ(status_of(reader.data(), clock_now()), RunStatus::failed);
  EXPECT_EQ(reader.data().end_reason, "no memory");

  // A resume after step 30: what came later no longer counts.
  RunLogWriter again(folder_ / kRunLogFile);
  again.begin({.settings = nullptr, .model = nullptr, .step = 30, .max_steps = 100});
  reader.poll();
  EXPECT_EQ(values(reader, "loss").size(), 3U);
  EXPECT_EQ(reader.data().session_step, 30);
  EXPECT_EQ(status_of(reader.data(), clock_now()), RunStatus::running);
  again.end("interrupted");
  reader.poll();
  EXPECT_EQ(status_of(reader.data(), clock_now()), RunStatus::interrupted);

  // A run from the beginning begins the file anew.
  again.begin({.settings = nullptr, .model = nullptr, .step = 0, .max_steps = 7});
  reader.poll();
  EXPECT_TRUE(values(reader, "loss").empty());
  EXPECT_EQ(reader.data().max_steps, 7);
}

TEST_F(RunReading, NoticesThatTheProcessIsGone) {
  append(
      kRunLogFile, "{\"event\": \"begin\", \"time\": 1.0, \"pid\": 999999999, \"host\": \"" + [] {
        char name[256] = {};
        ::gethostname(name, sizeof name - 1);
        return std::string(name);
      }() + "\", \"process_start\": 5, \"step\": 0, \"max_steps\": 10}\n");
  RunReader reader(folder_);
  reader.poll();
  EXPECT_EQ(status_of(reader.data(), 2.0), RunStatus::lost);
}

TEST_F(RunReading, JudgesARunElsewhereByItsSilence) {
  append(kRunLogFile,
         "{\"event\": \"begin\", \"time\": 100.0, \"pid\": 1, \"host\": \"some other machine\", "
         "\"process_start\": 5, \"step\": 0, \"max_steps\": 10}\n");
  RunReader reader(folder_);
  reader.poll();
  EXPECT_EQ(status_of(reader.data(), 200), RunStatus::running);
  EXPECT_EQ(status_of(reader.data(), 2000), RunStatus::lost);
  EXPECT_EQ(status_of(reader.data(), -2000), RunStatus::lost) << "a sign from the future is none";
}

TEST_F(RunReading, FindsRuns) {
  for (const auto* name : {"a", "b/deep/c", "d/checkpoint-5", ".hidden", "none"})
    fs::create_directories(folder_ / name);
  append("a/log.jsonl", "");
  append("b/deep/c/run_log.jsonl", "");
  append(".hidden/log.jsonl", "");
  fs::create_directory_symlink(folder_ / "a", folder_ / "link");
  EXPECT_EQ(find_runs(folder_),
            (std::vector<fs::path>{folder_ / "a", folder_ / "b/deep/c", folder_ / "d"}));
  EXPECT_EQ(find_runs(folder_ / "a"), (std::vector<fs::path>{folder_ / "a"}));
  EXPECT_TRUE(find_runs(folder_ / "none").empty());
}

TEST_F(RunReading, CostsTheRunNothingWhenTheDiskIsFull) {
  const auto before = set_log_sink(std::make_shared<gradus::testing::SilentLog>());
  RunLogWriter writer("/dev/full");
  writer.begin({.settings = nullptr, .model = nullptr, .step = 1, .max_steps = 1});
  writer.entry({{"loss", 1}}, 1);
  writer.end("finished");
  set_log_sink(before);
}

}  // namespace
}  // namespace gradus::runs
