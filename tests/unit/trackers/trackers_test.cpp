#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/trackers/jsonl.h>
#include <gradus/trackers/progress_bar.h>
#include <gradus/trackers/tensorboard.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "../error_of.h"
#include "trackers/event_proto.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A folder that is removed when the test ends.
class TrackerFiles : public ::testing::Test {
 protected:
  TrackerFiles() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~TrackerFiles() override {
    ::unsetenv("TENSORBOARD_LOGGING_DIR");
    fs::remove_all(folder_);
  }
  fs::path folder_ = fs::temp_directory_path() /
                     ("gradus-trackers-" +
                      std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
};

struct CapturingSink : LogSink {
  explicit CapturingSink(bool terminal) : terminal_(terminal) {}
  void message(LogLevel, std::string_view line) override { messages += std::string(line) + "\n"; }
  void print(std::string_view text) override { printed += text; }
  bool is_terminal() const override { return terminal_; }
  std::string messages, printed;
  bool terminal_;
};

struct SinkGuard {
  explicit SinkGuard(bool terminal = false)
      : sink(std::make_shared<CapturingSink>(terminal)), before(set_log_sink(sink)) {}
  ~SinkGuard() { set_log_sink(before); }
  std::shared_ptr<CapturingSink> sink;
  std::shared_ptr<LogSink> before;
};

/// The events of a file, framing and checksums checked.
std::vector<std::string> read_events(const fs::path& file) {
  const auto bytes = read_file(file);
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    uint32_t length_crc = 0, crc = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&length_crc, bytes.data() + at + 8, 4);
    EXPECT_EQ(length_crc, event_proto::masked_crc32c(std::string_view(bytes).substr(at, 8)));
    events.push_back(bytes.substr(at + 12, length));
    std::memcpy(&crc, bytes.data() + at + 12 + length, 4);
    EXPECT_EQ(crc, event_proto::masked_crc32c(events.back()));
    at += 16 + length;
  }
  return events;
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(TrackerFiles, JsonlWritesOneObjectPerEntryAtOnce) {
  auto tracker = jsonl_logger(folder_ / "deep" / "log.jsonl");
  tracker->log({{"loss", 0.5}, {"learning_rate", 5e-5}}, 8);
  tracker->log({{"loss", NAN}}, 16);
  EXPECT_EQ(
      read_file(folder_ / "deep" / "log.jsonl"),
      "{\"step\": 8, \"learning_rate\": 5e-05, \"loss\": 0.5}\n{\"step\": 16, \"loss\": NaN}\n");
}

TEST_F(TrackerFiles, JsonlGoesOnAfterACutLine) {
  const auto file = folder_ / "log.jsonl";
  std::ofstream(file) << "{\"step\": 1, \"loss\": 1.0}\n{\"step\": 2, \"lo";
  auto tracker = jsonl_logger(file);
  tracker->log({{"loss", 0.5}}, 2);
  tracker->finish();
  tracker->finish();
  EXPECT_EQ(read_file(file), "{\"step\": 1, \"loss\": 1.0}\n{\"step\": 2, \"loss\": 0.5}\n");
}

TEST_F(TrackerFiles, ATrackerThatCannotWriteWarnsAndLetsTheRunGoOn) {
  const SinkGuard guard;
  std::ofstream(folder_ / "file") << "x";
  auto tracker = jsonl_logger(folder_ / "file" / "log.jsonl");
  EXPECT_NO_THROW(tracker->log({{"loss", 1}}, 1));
  EXPECT_NO_THROW(tracker->log({{"loss", 1}}, 2));
  EXPECT_TRUE(contains(guard.sink->messages, "training continues without this tracker"));
  auto board = tensorboard_tracker(folder_, folder_ / "file");
  EXPECT_NO_THROW(board->log({{"loss", 1}}, 1));
}

TEST(EventProto, ChecksumOfTheStandard) {
  // 32 zero bytes, from RFC 3720; masked as in TFRecord.
  const uint32_t crc = 0x8a9136aau;
  EXPECT_EQ(event_proto::masked_crc32c(std::string(32, '\0')),
            ((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

TEST_F(TrackerFiles, TensorBoardFileHasVersionTextHyperparametersAndScalars) {
  auto tracker = tensorboard_tracker(folder_);
  tracker->begin({{"learning_rate", 0.1}, {"optim", "sgd"}, {"bf16", true}, {"nothing", nullptr}},
                 {{"hidden_size", 8}});
  tracker->log({{"loss", 0.25}, {"eval_loss", 0.5}, {"test_acc", 1.0}}, 300);
  tracker->finish();
  const auto files = files_in(folder_);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].parent_path().parent_path(), folder_ / "runs");
  EXPECT_TRUE(files[0].filename().string().starts_with("events.out.tfevents."));
  const auto events = read_events(files[0]);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_TRUE(contains(events[0], "brain.Event:2"));
  EXPECT_TRUE(contains(events[1], "args/text_summary") &&
              contains(events[1], "\"learning_rate\": 0.1") &&
              contains(events[1], "model_config/text_summary"));
  EXPECT_TRUE(contains(events[2], "_hparams_/session_start_info") && contains(events[2], "optim") &&
              !contains(events[2], "nothing"));
  EXPECT_TRUE(contains(events[3], "train/loss") && contains(events[3], "eval/loss") &&
              contains(events[3], "test/acc"));
  EXPECT_TRUE(contains(events[3], std::string("\x10\xac\x02")));  // field 2: step 300
  EXPECT_TRUE(contains(events[4], "_hparams_/session_end_info"));
}

TEST_F(TrackerFiles, TensorBoardKeepsTheOrderAndTheTimesOfHistogramsAndScalars) {
  auto tracker = tensorboard_tracker(folder_);
  EXPECT_TRUE(tracker->takes_histograms());
  const Histogram histogram{
      .min = 1, .max = 2, .sum = 3, .sum_squares = 5, .limits = {1, 2}, .counts = {0, 2}};
  tracker->log_histogram("weights/w", histogram, 1);
  tracker->log({{"loss", 1.0}}, 1);
  tracker->log_histogram("weights/w", histogram, 2);
  tracker->log({{"loss", 2.0}}, 2);
  tracker->finish();
  const auto events = read_events(files_in(folder_).at(0));
  ASSERT_EQ(events.size(), 5u);
  const std::vector<const char*> names = {"brain.Event:2", "weights/w", "train/loss", "weights/w",
                                          "train/loss"};
  double before = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_TRUE(contains(events[i], names[i])) << i;
    double time = 0;
    std::memcpy(&time, events[i].data() + 1, sizeof time);  // field 1 comes first
    // The version is written by the thread that gathers entries, after them.
    if (i == 0) continue;
    EXPECT_GE(time, before) << i;
    before = time;
  }
}

TEST_F(TrackerFiles, TensorBoardCutsOffWhatAFullDiskLeftOfAnEntry) {
  const SinkGuard guard;
  auto tracker = tensorboard_tracker(folder_, folder_ / "board");
  tracker->log({{"loss", 1.0}}, 1);
  tracker->finish();
  const auto file = files_in(folder_).at(0);
  std::ofstream(file, std::ios::app) << "the half of an event";
  tracker->log({{"loss", 2.0}}, 2);
  tracker->finish();
  EXPECT_EQ(read_events(file).size(), 3u);
}

// A thread of a tracker must not take the processor from those that train.
TEST_F(TrackerFiles, ThreadsOfTrackersGiveWay) {
  const auto niceness = [](const fs::path& task) {
    std::string text = read_file(task / "stat"), word;
    std::istringstream words(text.substr(text.rfind(')') + 2));
    for (int i = 0; i < 17; ++i) words >> word;
    return std::stoi(word);
  };
  const auto own = niceness("/proc/self");
  auto tracker = tensorboard_tracker(folder_);
  tracker->log({{"loss", 1.0}}, 1);
  tracker->finish();  // its thread has worked by now
  std::set<int> others;
  for (const auto& task : fs::directory_iterator("/proc/self/task"))
    if (const int value = niceness(task.path()); value != own) others.insert(value);
  const int lower = std::min(own + 10, 19);  // 19 is the lowest that there is
  EXPECT_EQ(others, lower == own ? std::set<int>() : std::set<int>{lower});
}

TEST_F(TrackerFiles, TensorBoardFolderFromTheEnvironmentIsContinued) {
  ::setenv("TENSORBOARD_LOGGING_DIR", (folder_ / "board").c_str(), 1);
  for (const int64_t step : {10, 6}) {
    auto tracker = tensorboard_tracker(folder_);
    tracker->training_begins(step - 1);
    tracker->log({{"loss", 1.0}}, step);
    tracker->log({{"loss", 1.0}}, step + 1);
  }
  tensorboard_tracker(folder_)->log({{"eval_loss", 1.0}}, 0);  // an evaluation supersedes nothing
  const auto files = files_in(folder_ / "board");
  ASSERT_EQ(files.size(), 3u);
  std::vector<size_t> counts;
  for (const auto& file : files) counts.push_back(read_events(file).size());
  EXPECT_EQ(counts, (std::vector<size_t>{3, 4, 2}));  // the second says it starts again
  EXPECT_TRUE(
      contains(read_events(files[1])[1], std::string("\x10\x06\x3a\x02\x08\x01")));  // at step 6
}

TEST_F(TrackerFiles, TensorBoardWritesOneFileAlsoAfterTheEndOfTraining) {
  auto tracker = tensorboard_tracker(folder_);
  tracker->begin({{"seed", 1}}, nullptr);
  tracker->training_begins(0);
  tracker->log({{"loss", 1.0}}, 4);
  tracker->finish();
  tracker->begin({{"seed", 1}}, nullptr);
  tracker->log({{"eval_loss", 2.0}}, 4);
  tracker->finish();
  const auto files = files_in(folder_);
  ASSERT_EQ(files.size(), 1u);
  const auto events = read_events(files[0]);
  // version, text, hyperparameters, loss, end, eval_loss, end
  ASSERT_EQ(events.size(), 7u);
  EXPECT_TRUE(contains(events[5], "eval/loss"));
}

TEST_F(TrackerFiles, TensorBoardFilesOfOneSecondSortAsTheyWereMade) {
  std::vector<fs::path> made;
  for (int i = 0; i < 12; ++i) {
    tensorboard_tracker(folder_, folder_ / "board")->log({{"loss", 1.0}}, i);
    made.push_back(files_in(folder_ / "board").back());
  }
  EXPECT_EQ(files_in(folder_ / "board"), made);
}

TEST(Trackers, DashboardKeys) {
  EXPECT_EQ(dashboard_key("eval_loss"), "eval/loss");
  EXPECT_EQ(dashboard_key("test_runtime"), "test/runtime");
  EXPECT_EQ(dashboard_key("loss"), "train/loss");
  EXPECT_EQ(dashboard_key("train_loss"), "train/train_loss");
}

TEST(Trackers, ReportToNames) {
  EXPECT_EQ(make_trackers({"all"}, "out").size(), tracker_names().size());
  EXPECT_EQ(make_trackers({"tensorboard", "jsonl"}, "out").size(), 2u);
  EXPECT_TRUE(make_trackers({"none"}, "out").empty());
  EXPECT_TRUE(make_trackers({}, "out").empty());
  expect_error([] { make_trackers({"comet_ml"}, "out"); }, "G-TRACK-1",
               {"report_to: gradus does not report to comet_ml yet", "all, none, jsonl"});
  expect_error([] { make_trackers({"tensorbord"}, "out"); }, "G-TRACK-1",
               {"received \"tensorbord\"", "Did you mean tensorboard?"});
}

TEST(Trackers, RegisteredOnesAreMadeByName) {
  struct Counting : Tracker {
    explicit Counting(std::filesystem::path folder) : folder(std::move(folder)) {}
    void log(const std::map<std::string, double>&, int64_t) override { ++logs; }
    std::filesystem::path folder;
    int logs = 0;
  };
  const auto make = [](const std::filesystem::path& folder) {
    return std::make_shared<Counting>(folder);
  };
  register_tracker("counting", make);
  EXPECT_EQ(tracker_names().back(), "counting");
  EXPECT_EQ(tracker_choices().back(), "counting");
  const auto made = std::dynamic_pointer_cast<Counting>(make_tracker("counting", "out"));
  ASSERT_TRUE(made);
  EXPECT_EQ(made->folder, "out");
  expect_error([] { make_tracker("countin", "out"); }, "G-TRACK-1", {"Did you mean counting?"});
  expect_error([&] { register_tracker("counting", make); }, "G-REG-1",
               {"register_tracker: 'counting' is there already"});
  expect_error([&] { register_tracker("jsonl", make); }, "G-REG-1", {"'jsonl'"});
  expect_error([&] { register_tracker("all", make); }, "G-REG-1", {"'all'"});
  register_tracker("swanlab", make);  // a name of transformers that gradus does not have is free
  EXPECT_NO_THROW(make_tracker("swanlab", "out"));
}

struct FakeClock {
  std::chrono::steady_clock::time_point time;
  void advance(double seconds) {
    time += std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(seconds));
  }
};

std::string blocks(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "█";
  return text;
}

TEST(ProgressBar, RedrawsOneLineOnATerminal) {
  const SinkGuard guard(/*terminal=*/true);
  FakeClock clock;
  {
    ProgressBar bar({.total = 30, .now = [&] { return clock.time; }});
    guard.sink->printed.clear();
    clock.advance(0.05);
    bar.update();
    EXPECT_EQ(guard.sink->printed, "");  // too soon
    clock.advance(1.95);
    bar.set_postfix("loss=0.25");
    bar.update(9);
    EXPECT_TRUE(contains(guard.sink->printed,
                         "\r 33%|████████                "
                         "| 10/30 [00:02<00:04, 5.00it/s, loss=0.25]"))
        << guard.sink->printed;
    guard.sink->printed.clear();
    bar.write("{'loss': 0.25}");
    EXPECT_TRUE(contains(guard.sink->printed, "\r{'loss': 0.25}\n\r 33%"));
    clock.advance(2);
    bar.update(20);
    guard.sink->printed.clear();
  }
  EXPECT_TRUE(contains(guard.sink->printed, "\r100%|" + blocks(24) + "| 30/30 [00:04<00:00"))
      << guard.sink->printed;
  EXPECT_TRUE(guard.sink->printed.ends_with("\n"));
}

TEST(ProgressBar, WritesAFewPlainLinesElsewhere) {
  const SinkGuard guard;
  FakeClock clock;
  ProgressBar bar({.total = 1000, .description = "Evaluating", .now = [&] { return clock.time; }});
  for (int i = 0; i < 1000; ++i) {
    clock.advance(0.01);
    bar.update();
  }
  bar.close();
  bar.close();
  const auto& text = guard.sink->printed;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'),
            4);  // ten seconds: three lines at tenths, three seconds apart, and the end
  EXPECT_TRUE(contains(text, "Evaluating:  30% 300/1000 [00:03<00:07, 100.00it/s]\n")) << text;
  EXPECT_TRUE(contains(text, "Evaluating: 100% 1000/1000 [00:10<00:00, 100.00it/s]\n")) << text;
  EXPECT_FALSE(contains(text, "\r"));
}

TEST(ProgressBar, AfterAResumeOnlyNewStepsCountInTheRate) {
  const SinkGuard guard;
  FakeClock clock;
  ProgressBar bar({.total = 100, .initial = 50, .now = [&] { return clock.time; }});
  clock.advance(20);
  bar.update(10);
  EXPECT_EQ(guard.sink->printed, " 60% 60/100 [00:20<01:20, 2.00s/it]\n");
}

TEST(ProgressBar, UnknownTotalShowsTheCount) {
  const SinkGuard guard;
  FakeClock clock;
  ProgressBar bar({.now = [&] { return clock.time; }});
  clock.advance(61);
  bar.update(122);
  EXPECT_EQ(guard.sink->printed, "122it [01:01, 2.00it/s]\n");
  EXPECT_EQ(duration_text(3700), "1:01:40");
}

}  // namespace
}  // namespace gradus
