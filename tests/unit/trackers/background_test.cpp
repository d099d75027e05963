// Trackers with a thread of their own: slow, failing and hanging ones, and the formats they write.
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/trackers/csv.h>
#include <gradus/trackers/mlflow.h>
#include <gradus/trackers/openmetrics.h>
#include <gradus/trackers/trackio.h>
#include <gradus/trackers/wandb.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <netinet/in.h>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <set>

#include "trackers/background_tracker.h"
#include "trackers/http_request.h"
#include "trackers/sqlite_database.h"
#include "trackers/text_server.h"
#include "trackers/tracked_run.h"
#include "trackers/wandb_log.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

/// What a writer was told, and how it behaves.
struct Told {
  std::mutex mutex;
  std::vector<std::string> calls;
  int failures = 0;               // of the next calls
  std::shared_future<void> gate;  // every call waits for it

  void hear(const std::string& call) {
    if (gate.valid()) gate.wait();
    const std::lock_guard lock(mutex);
    if (failures > 0) {
      --failures;
      throw std::runtime_error("no room");
    }
    calls.push_back(call);
  }
};

class TellingWriter : public TrackerWriter {
 public:
  explicit TellingWriter(std::shared_ptr<Told> told) : told_(std::move(told)) {}
  void begin(const TrackedRun& run) override {
    told_->hear("begin " + run.args.dump() + " " + std::to_string(run.parameters.value_or(-1)));
  }
  void training_begins(int64_t step) override { told_->hear("from " + std::to_string(step)); }
  void write(std::span<const TrackedEntry> entries) override {
    std::string steps;
    for (const auto& entry : entries) steps += " " + std::to_string(entry.step);
    told_->hear("log" + steps);
  }
  void finish() override { told_->hear("finish"); }

 private:
  std::shared_ptr<Told> told_;
};

struct WarningSink : LogSink {
  void message(LogLevel, std::string_view line) override {
    const std::lock_guard lock(mutex);
    messages += std::string(line) + "\n";
  }
  void print(std::string_view) override {}
  bool is_terminal() const override { return false; }
  std::mutex mutex;
  std::string messages;
};

class BackgroundTrackers : public ::testing::Test {
 protected:
  BackgroundTrackers() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~BackgroundTrackers() override {
    set_log_sink(before_);
    fs::remove_all(folder_);
  }
  bool warned(const std::string& text) {
    const std::lock_guard lock(sink_->mutex);
    return sink_->messages.find(text) != std::string::npos;
  }
  std::shared_ptr<Tracker> telling(BackgroundOptions options = {}) {
    return in_background("telling", std::make_unique<TellingWriter>(told_), options);
  }

  fs::path folder_ = fs::temp_directory_path() /
                     ("gradus-background-" +
                      std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
  std::shared_ptr<WarningSink> sink_ = std::make_shared<WarningSink>();
  std::shared_ptr<LogSink> before_ = set_log_sink(sink_);
  std::shared_ptr<Told> told_ = std::make_shared<Told>();
};

using Calls = std::vector<std::string>;

TEST_F(BackgroundTrackers, CallsKeepTheirOrderAndEntriesAreWrittenTogether) {
  auto tracker = telling();
  tracker->begin({{"seed", 1}}, nullptr);
  tracker->model_parameters(7);
  tracker->training_begins(2);
  for (int64_t step = 3; step < 6; ++step) tracker->log({{"loss", 1.0}}, step);
  tracker->finish();
  EXPECT_EQ(told_->calls, (Calls{R"(begin {"seed":1} 7)", "from 2", "log 3 4 5", "finish"}));
  told_->calls.clear();
  tracker->log({{"eval_loss", 1.0}}, 5);  // an evaluation after training
  tracker.reset();
  EXPECT_EQ(told_->calls, (Calls{R"(begin {"seed":1} 7)", "log 5", "finish"}));
}

/// Says when it has got as many histograms as it waits for.
struct HistogramWriter : TrackerWriter {
  explicit HistogramWriter(int count) : left(count) {}
  void begin(const TrackedRun&) override {}
  void write(std::span<const TrackedEntry>) override {}
  bool takes_histograms() const override { return true; }
  void write_histogram(const TrackedHistogram&) override {
    if (--left == 0) all.set_value();
  }
  int left;
  std::promise<void> all;
};

// A step has hundreds of them, and a pause between two would be minutes for each step.
TEST_F(BackgroundTrackers, WhatWaitsIsWrittenWithoutPausesBetween) {
  auto writer = std::make_unique<HistogramWriter>(6);
  auto all = writer->all.get_future();
  auto tracker = in_background("histograms", std::move(writer), {.capacity = 10, .interval = 1h});
  tracker->training_begins(0);
  for (int i = 0; i < 6; ++i) tracker->log_histogram("weights/w", {}, 1);  // more than half
  EXPECT_EQ(all.wait_for(60s), std::future_status::ready);
}

TEST_F(BackgroundTrackers, AFailureIsTriedAgainAndLosesNothing) {
  told_->failures = 1;
  auto tracker = telling({.interval = 1ms, .retry = 1ms});
  for (int64_t step = 0; step < 2; ++step) tracker->log({{"loss", 1.0}}, step);
  tracker->finish();
  EXPECT_EQ(told_->calls, (Calls{"begin null -1", "log 0 1", "finish"}));
  EXPECT_TRUE(warned("telling: no room; training continues"));
  EXPECT_FALSE(warned("could not be written"));
}

TEST_F(BackgroundTrackers, AWriterThatAlwaysFailsIsGivenUpAtTheEnd) {
  told_->failures = 1 << 30;
  auto tracker = telling({.interval = 1ms, .retry = 1ms});
  for (int64_t step = 0; step < 5; ++step) tracker->log({{"loss", 1.0}}, step);
  tracker->finish();
  EXPECT_EQ(told_->calls, Calls{});
  EXPECT_TRUE(warned("telling: 5 log entries could not be written"));
}

TEST_F(BackgroundTrackers, AHangingWriterNeitherSlowsNorStopsTheRunAndItsQueueIsBounded) {
  std::promise<void> open;
  told_->gate = open.get_future().share();
  auto tracker = telling({.capacity = 100, .interval = 1ms, .finish_timeout = 50ms});
  const auto start = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < 100000; ++step) tracker->log({{"loss", 1.0}}, step);
  tracker->finish();
  tracker->log({{"loss", 1.0}}, 1);
  tracker->finish();
  tracker.reset();
  // A hundred thousand entries and the wait of 50 ms; one entry of a writer that is waited for
  // would take forever.
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  EXPECT_TRUE(warned("telling: no answer within 0 s, the run goes on without it"));
  open.set_value();  // lets the thread that was left behind end
}

TEST_F(BackgroundTrackers, BeyondItsCapacityTheOldestEntriesGo) {
  std::promise<void> open;
  told_->gate = open.get_future().share();
  auto tracker = telling({.capacity = 3, .interval = 1ms});
  tracker->training_begins(0);
  for (int64_t step = 1; step <= 8; ++step) tracker->log({{"loss", 1.0}}, step);
  open.set_value();
  tracker->finish();
  EXPECT_EQ(told_->calls, (Calls{"begin null -1", "from 0", "log 6 7 8", "finish"}));
  EXPECT_TRUE(warned("telling: 5 log entries could not be written"));
}

TEST_F(BackgroundTrackers, CsvHasAColumnForEveryKey) {
  const auto file = folder_ / "deep" / "log.csv";
  auto tracker = csv_tracker(file);
  tracker->log({{"loss", 0.1}, {"a,\"b\"", 2}}, 1);
  tracker->finish();
  EXPECT_EQ(read_file(file), "step,\"a,\"\"b\"\"\",loss\n1,2,0.1\n");
  tracker->log({{"eval_loss", INFINITY}}, 1);
  tracker->log({{"loss", NAN}}, 2);
  tracker->finish();
  EXPECT_EQ(read_file(file), "step,\"a,\"\"b\"\"\",loss,eval_loss\n1,2,0.1,\n1,,,inf\n2,,nan,\n");
}

TEST_F(BackgroundTrackers, CsvOfAResumedRunDropsRowsAfterTheCheckpoint) {
  const auto file = folder_ / "log.csv";
  std::ofstream(file) << "step,loss\n1,3\n2,2\n3,1\n4,0.";  // the last line was cut off
  auto tracker = csv_tracker(file);
  tracker->training_begins(2);
  tracker->log({{"loss", 0.5}}, 3);
  tracker.reset();
  EXPECT_EQ(read_file(file), "step,loss\n1,3\n2,2\n3,0.5\n");
}

TEST_F(BackgroundTrackers, APlaceThatCannotBeWrittenCostsTheCurveNotTheRun) {
  std::ofstream(folder_ / "file") << "x";
  const auto inside = folder_ / "file" / "log";
  for (const auto& tracker : {csv_tracker(inside), trackio_tracker(inside),
                              mlflow_tracker("sqlite:///" + inside.string()),
                              mlflow_tracker(inside.string()), wandb_tracker(inside)}) {
    EXPECT_NO_THROW(tracker->begin({{"seed", 1}}, nullptr));
    EXPECT_NO_THROW(tracker->log({{"loss", 1.0}}, 1));
    EXPECT_NO_THROW(tracker->finish());
  }
  for (const char* name : {"csv", "trackio", "mlflow", "wandb"})
    EXPECT_TRUE(warned(std::string(name) + ": 1 log entries could not be written")) << name;
}

TEST_F(BackgroundTrackers, AServerThatHangsIsLeftBehind) {
  if (!can_send_requests()) GTEST_SKIP() << "there is no libcurl.so.4";
  // Listens and never answers.
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 4), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  HttpRequest request{.url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/",
                      .timeout = 100ms};
  EXPECT_THROW(send_request(request), Error);
  ::close(listener);
  EXPECT_THROW(send_request(request), Error);  // nobody listens now
}

TEST_F(BackgroundTrackers, MlflowDatabaseKeepsSpecialNumbersAndTheLatest) {
  const auto file = folder_ / "mlflow.db";
  auto tracker = mlflow_tracker("sqlite:///" + file.string());
  tracker->begin({{"seed", 1}, {"run_name", "mine"}, {"none", nullptr}, {"list", {1, "a"}}},
                 {{"hidden_size", 8}, {"seed", 2}});
  tracker->log({{"loss", 1.0}, {"eval (x)", NAN}}, 1);
  tracker->log({{"loss", -INFINITY}}, 2);
  tracker.reset();
  SqliteDatabase database(file);
  const auto params = database.run("SELECT \"key\", value FROM params ORDER BY \"key\"");
  ASSERT_EQ(params.size(), 5u);
  EXPECT_EQ(params[0], (std::vector<SqlValue>{"hidden_size", "8"}));
  EXPECT_EQ(params[1], (std::vector<SqlValue>{"list", "[1, 'a']"}));
  EXPECT_EQ(params[2], (std::vector<SqlValue>{"none", "None"}));
  EXPECT_EQ(params[4], (std::vector<SqlValue>{"seed", "1"}));
  const auto latest =
      database.run("SELECT \"key\", value, step, is_nan FROM latest_metrics ORDER BY \"key\"");
  ASSERT_EQ(latest.size(), 2u);
  EXPECT_EQ(latest[0], (std::vector<SqlValue>{"eval _x_", 0.0, int64_t(1), int64_t(1)}));
  EXPECT_EQ(latest[1], (std::vector<SqlValue>{"loss", -std::numeric_limits<double>::max(),
                                              int64_t(2), int64_t(0)}));
  EXPECT_EQ(database.run("SELECT name, status FROM runs"),
            (std::vector<std::vector<SqlValue>>{{"mine", "FINISHED"}}));
}

TEST_F(BackgroundTrackers, MlflowLeavesOutNamesThatItRefusesAndKeepsTheRest) {
  const auto root = folder_ / "deep" / "mlruns";
  auto tracker = mlflow_tracker(root.string());
  // A config may come from strangers; its names become files.
  tracker->begin({{"seed", 1}, {"list", {"it's", "a\n"}}},
                 {{"../../../../param", "x"}, {"größe", 1}, {"a=b", 1}, {"", 1}});
  tracker->log({{"loss", 1.0},
                {"../../../../up", 2.0},
                {"/absolute", 2.0},
                {std::string(251, 'x'), 3.0},
                {"loss/part", 4.0},
                {"größe", 5.0}},
               1);
  tracker->log({{"loss", 0.5}}, 2);
  tracker.reset();
  std::set<std::string> names;
  std::string losses, list;
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    if (!entry.is_regular_file()) continue;
    const auto kind = entry.path().parent_path().filename();
    if (kind == "metrics" || kind == "params")
      names.insert((kind / entry.path().filename()).string());
    if (entry.path().filename() == "loss") losses = read_file(entry.path());
    if (entry.path().filename() == "list") list = read_file(entry.path());
    EXPECT_TRUE(entry.path().string().starts_with(root.string())) << entry.path();
  }
  EXPECT_EQ(names, (std::set<std::string>{"metrics/gr__e", "metrics/loss", "params/größe",
                                          "params/list", "params/seed"}));
  EXPECT_EQ(std::count(losses.begin(), losses.end(), '\n'), 2) << losses;
  EXPECT_EQ(list, "[\"it's\", 'a\\n']");
  EXPECT_TRUE(warned("the metric '../../../../up' is left out"));
  EXPECT_TRUE(warned("the parameter 'a=b' is left out"));
  EXPECT_TRUE(warned("'loss/part' is left out"));
}

TEST_F(BackgroundTrackers, SettingsThatCannotBeUsedCostNoEntry) {
  const std::map<std::string, std::string> settings = {
      {"MLFLOW_TAGS", "{broken"},
      {"MLFLOW_MAX_LOG_PARAMS", "99999999999999999999999"},
      {"WANDB_RUN_ID", "../../elsewhere"},
      {"GRADUS_OPENMETRICS_PORT", "99999"}};
  for (const auto& [name, value] : settings) ::setenv(name.c_str(), value.c_str(), 1);
  const auto file = folder_ / "mlflow.db";
  auto trackers = {mlflow_tracker("sqlite:///" + file.string()), wandb_tracker(folder_ / "w"),
                   openmetrics_tracker()};
  for (const auto& tracker : trackers) {
    tracker->begin({{"seed", 1}}, nullptr);
    tracker->log({{"loss", 1.0}}, 1);
    tracker->finish();
  }
  ::setenv("MLFLOW_RUN_ID", "none", 1);
  const auto lost = mlflow_tracker((folder_ / "nowhere").string());
  lost->begin({{"seed", 1}}, nullptr);
  lost->log({{"loss", 1.0}}, 1);
  lost->finish();
  ::unsetenv("MLFLOW_RUN_ID");
  for (const auto& [name, value] : settings) ::unsetenv(name.c_str());
  EXPECT_TRUE(warned("MLFLOW_TAGS is not valid JSON"));
  EXPECT_TRUE(warned("the tags are left out"));
  EXPECT_TRUE(warned("WANDB_RUN_ID ../../elsewhere is not used"));
  EXPECT_TRUE(warned("expected a port from 0 to 65535, received \"99999\""));
  EXPECT_TRUE(warned("nowhere has no run none"));
  SqliteDatabase database(file);
  EXPECT_EQ(database.run("SELECT \"key\", value FROM metrics"),
            (std::vector<std::vector<SqlValue>>{{"loss", 1.0}}));
  EXPECT_EQ(database.run("SELECT \"key\" FROM params").size(), 1u);
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "w"))
    EXPECT_EQ(entry.path().string().find("elsewhere"), std::string::npos) << entry.path();
}

TEST_F(BackgroundTrackers, WandbRecordsLieInBlocks) {
  const auto file = folder_ / "run.wandb";
  {
    WandbLog log(file);
    log.append(std::string(32768 - 7 - 7 - 3, 'a'));  // leaves three bytes of the first block
    log.append("b");
    log.flush();
    log.append("taken back");
    log.discard();
    log.append(std::string(70000, 'c'));
    log.flush();
  }
  const auto bytes = read_file(file);
  EXPECT_EQ(bytes.substr(0, 7), std::string(":W&B\xe1\xbe\0", 7));
  EXPECT_EQ(bytes.substr(32765, 3), std::string(3, '\0'));
  EXPECT_EQ(bytes[13], 1);             // a whole record
  EXPECT_EQ(bytes[32768 + 6], 1);      // "b" begins the second block
  EXPECT_EQ(bytes[32768 + 8 + 6], 2);  // the first part of the third record
  EXPECT_EQ(bytes[2 * 32768 + 6], 3);  // its middle
  EXPECT_EQ(bytes[3 * 32768 + 6], 4);  // its end
  EXPECT_EQ(bytes.size(), 32768u + 8 + 70000 + 3 * 7);
}

TEST_F(BackgroundTrackers, TextServerAnswersOneAddressOnly) {
  if (!can_send_requests()) GTEST_SKIP() << "there is no libcurl.so.4";
  TextServer server(0, "/metrics", "text/plain", [] { return std::string("hello"); });
  const auto address = "http://127.0.0.1:" + std::to_string(server.port());
  const auto answer = send_request({.url = address + "/metrics"});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "hello");
  EXPECT_EQ(send_request({.url = address + "/../etc/passwd"}).status, 404);
  const auto as = [&](const std::string& host) {
    return send_request({.url = address + "/metrics", .headers = {"Host: " + host}}).status;
  };
  for (const char* own : {"localhost:9464", "127.0.0.1", "10.0.0.1:80", "[::1]:9464", "LOCALHOST"})
    EXPECT_EQ(as(own), 200) << own;
  for (const char* other : {"evil.example", "evil.example:9464", "127.0.0.1.evil.example"})
    EXPECT_EQ(as(other), 421) << other;
  EXPECT_EQ(send_request({.url = address + "/metrics", .body = "x"}).status, 405);
  EXPECT_THROW(TextServer(server.port(), "/", "text/plain", [] { return std::string(); }), Error);
}

// Ids of entries and runs: several processes may write to one database.
TEST(RandomText, IsAnotherOneInAForkedProcess) {
  EXPECT_NE(tracked::random_text(32), tracked::random_text(32));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto text = tracked::random_text(32);
    ::_exit(::write(ends[1], text.data(), text.size()) == 32 ? 0 : 1);
  }
  const auto here = tracked::random_text(32);
  std::string there(32, ' ');
  EXPECT_EQ(::read(ends[0], there.data(), there.size()), 32);
  EXPECT_NE(there, here);
  ::close(ends[0]);
  ::close(ends[1]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gradus
