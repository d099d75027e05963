#include "runs/samples.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "runs/run_collection.h"

namespace gradus::runs {
namespace {

namespace fs = std::filesystem;

class Samples : public ::testing::Test {
 protected:
  Samples() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() /
              ("gradus-samples-" + std::to_string(::getpid()) + "-" + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Samples() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }

  nlohmann::json rows(const std::string& name, int64_t from = 0, int64_t count = 100) {
    for (const auto& file : list_samples(folder_))
      if (file.name == name) return read_samples(file, from, count);
    return {{"error", "not listed"}};
  }

  fs::path folder_;
};

TEST_F(Samples, AreListedWithoutLinksAndCheckpoints) {
  write("generated_predictions.txt", "a\n");
  write("completions/completions_00010.jsonl", "{\"prompt\": \"p\"}\n");
  write("pictures/one.PNG", "x");
  write("sound.wav", "x");
  write("checkpoint-5/picture.png", "x");
  write("all_results.json", "{}");
  write("predict_results.json", "{}");
  write("model.safetensors", "x");
  write(".hidden/picture.png", "x");
  fs::create_symlink("/etc/passwd", folder_ / "predictions.txt");
  fs::create_directory_symlink("/usr/share", folder_ / "share");
  std::map<std::string, SampleKind> found;
  for (const auto& file : list_samples(folder_)) found[file.name] = file.kind;
  EXPECT_EQ(found, (std::map<std::string, SampleKind>{
                       {"generated_predictions.txt", SampleKind::table},
                       {"completions/completions_00010.jsonl", SampleKind::table},
                       {"pictures/one.PNG", SampleKind::image},
                       {"sound.wav", SampleKind::audio}}));
}

TEST_F(Samples, AreReadFromTheFilesOfAllTasks) {
  write("generated_predictions.txt", "first\nsecond\nthird");
  EXPECT_EQ(rows("generated_predictions.txt", 1, 1),
            (nlohmann::json{{"columns", {"text"}}, {"rows", {{"second"}}}, {"total", 3}}));
  write("predict_results_mnli.txt", "index\tprediction\n0\tneutral\n1\tentailment\n");
  EXPECT_EQ(rows("predict_results_mnli.txt").dump(),
            R"({"columns":["index","prediction"],"rows":[["0","neutral"],["1","entailment"]],)"
            R"("total":2})");
  write("predictions.json", "{\"q1\": \"Paris\", \"q2\": [1, 2]}");
  EXPECT_EQ(rows("predictions.json")["rows"].dump(), R"([["q1","Paris"],["q2","[1, 2]"]])");
  write("completions.jsonl",
        "{\"prompt\": \"p\", \"reward\": 0.5}\n{\"prompt\": \"q\", \"reward\": 1.5}\n");
  const auto table = rows("completions.jsonl");
  EXPECT_EQ(table["columns"], (nlohmann::json{"prompt", "reward"})) << table;
  EXPECT_EQ(table["rows"].dump(), R"([["p",0.5],["q",1.5]])");
  EXPECT_EQ(table["total"], 2);
}

TEST_F(Samples, ThatCannotBeReadSayWhy) {
  write("predictions.json", "{broken");
  EXPECT_TRUE(rows("predictions.json").contains("error"));
  write("completions.parquet", "no Parquet");
  EXPECT_TRUE(rows("completions.parquet").contains("error"));
}

TEST_F(Samples, CollectionsFollowRunsThatComeAndGrow) {
  write("a/log.jsonl", "{\"step\": 1, \"loss\": 2.0}\n");
  const RunCollection collection(folder_);
  const auto until = [](auto holds) {
    for (int i = 0; i < 2000 && !holds(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return holds();
  };
  const auto points = [&](size_t id) {
    const auto run = collection.find(id);
    if (!run) return size_t(0);
    const std::shared_lock lock(run->mutex);
    const auto* series = run->reader.data().find("loss");
    return series != nullptr ? series->size() : 0;
  };
  ASSERT_TRUE(until([&] { return collection.is_complete(); }));
  EXPECT_EQ(points(0), 1U);
  const auto version = collection.version();
  write("b/log.jsonl", "{\"step\": 1, \"loss\": 2.0}\n{\"step\": 2, \"loss\": 1.0}\n");
  std::ofstream(folder_ / "a/log.jsonl", std::ios::app) << "{\"step\": 2, \"loss\": 1.5}\n";
  ASSERT_TRUE(until([&] { return points(0) == 2 && points(1) == 2; }));
  EXPECT_GT(collection.version(), version);
  EXPECT_EQ(collection.find(1)->name, "b");
  EXPECT_EQ(collection.find(2), nullptr);
}

}  // namespace
}  // namespace gradus::runs
