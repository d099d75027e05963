// A run goes on bit for bit from every checkpoint, after being killed at any moment, and keeps what
// it has when a save fails.
#include <fcntl.h>
#include <fmt/format.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/checkpoint/manifest.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/optim/factory.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "../default_signals.h"
#include "../silent_log.h"
#include "dropout_run.h"

extern char** environ;

namespace gradus::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class ResumeRuns : public ::testing::Test {
 protected:
  ResumeRuns() : folder_(fs::temp_directory_path() / fmt::format("gradus-resume-{}", ::getpid())) {
    set_log_sink(std::make_shared<SilentLog>());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::permissions(folder_, fs::perms::all);
  }
  ~ResumeRuns() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    set_log_sink(nullptr);
  }
  fs::path folder_;
};

// trainer_state.json without what a clock, a path or the test's own save_steps decides.
json comparable_state(const fs::path& checkpoint) {
  auto state = read_json(checkpoint / "trainer_state.json");
  for (auto& entry : state["log_history"])
    for (auto it = entry.begin(); it != entry.end();)
      it = it.key().ends_with("_runtime") || it.key().ends_with("_per_second") ? entry.erase(it)
                                                                               : std::next(it);
  if (state["best_model_checkpoint"].is_string())
    state["best_model_checkpoint"] =
        fs::path(state["best_model_checkpoint"].get<std::string>()).filename().string();
  state.erase("save_steps");
  return state;
}

// Weights, moments and averages (optimizer.pt), schedule, scaler, generators, position: equal byte
// for byte.
void expect_same_checkpoint(const fs::path& got, const fs::path& expected,
                            const std::string& what) {
  for (const char* name :
       {"model.safetensors", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth"})
    EXPECT_EQ(read_file(got / name) == read_file(expected / name), true)
        << name << " differs " << what;
  EXPECT_EQ(read_file(got / "gradus_state.json"), read_file(expected / "gradus_state.json"))
      << what;
  EXPECT_EQ(comparable_state(got), comparable_state(expected)) << what;
}

int64_t train(const fs::path& run, int64_t save_steps, int64_t patience, const Resume& resume) {
  auto args = dropout_arguments(run.string(), save_steps);
  args.greater_is_better = patience < 100;  // the loss falls, so that patience ends soon
  Trainer trainer(dropout_run(std::move(args), patience));
  return trainer.train(resume).global_step;
}

TEST_F(ResumeRuns, AreBitEqualFromEveryCheckpoint) {
  const auto whole = folder_ / "whole";
  ASSERT_EQ(train(whole, 1, 100, Resume::none()), 60);
  ASSERT_EQ(list_checkpoints(whole).size(), 60U);
  for (const auto& from : list_checkpoints(whole)) {
    const auto run = folder_ / "resumed";
    fs::remove_all(run);
    ASSERT_EQ(train(run, 1000, 100, Resume::from(from.path)), 60);
    if (from.step < 60)
      expect_same_checkpoint(run / "checkpoint-60", whole / "checkpoint-60",
                             fmt::format("from step {}", from.step));
    if (HasFailure()) break;
  }
}

TEST_F(ResumeRuns, AreBitEqualWhenEarlyStoppingEndsThem) {
  const auto whole = folder_ / "whole";
  const auto end = train(whole, 1, 2, Resume::none());
  ASSERT_LT(end, 60) << "early stopping must end this run";
  const auto last = fmt::format("checkpoint-{}", end);
  for (const auto& from : list_checkpoints(whole)) {
    const auto run = folder_ / "resumed";
    fs::remove_all(run);
    ASSERT_EQ(train(run, 1, 2, Resume::from(from.path)), end) << "from step " << from.step;
    if (from.step < end)
      expect_same_checkpoint(run / last, whole / last, fmt::format("from step {}", from.step));
    if (HasFailure()) break;
  }
}

// The same with a layer that is large enough for states of few bits.
struct WideNet : Model {
  WideNet() {
    torch::manual_seed(5);
    first = register_module("first", torch::nn::Linear(8, 512));
    second = register_module("second", torch::nn::Linear(512, 3));
  }
  ModelOutput forward(const Batch& inputs, const ForwardOptions&) override {
    const auto logits = second->forward(torch::relu(first->forward(inputs["x"])));
    return {{"loss", torch::cross_entropy_loss(logits.to(torch::kFloat), inputs["labels"])},
            {"logits", logits}};
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

void train_wide(const fs::path& run, const std::string& optimizer, const Resume& resume) {
  auto args = dropout_arguments(run.string(), 3);
  args.max_steps = 6;
  args.warmup_steps = 1;
  args.optim = optimizer;
  if (optimizer_takes_targets(optimizer)) {
    args.optim_target_modules = "all-linear";
    args.optim_args = "rank=4,update_proj_gap=2";
  }
  auto options = dropout_run(std::move(args));
  options.model = std::make_shared<WideNet>();
  Trainer(std::move(options)).train(resume);
}

// But for muon, which unit_optim resumes: its products in bfloat16 trap in virtual machines that
// have AMX and hide it.
TEST_F(ResumeRuns, AreBitEqualWithEveryOptimizer) {
  for (const auto& name : optimizer_names()) {
    if (name == "muon") continue;
    const auto whole = folder_ / name, resumed = folder_ / (name + "-resumed");
    train_wide(whole, name, Resume::none());
    train_wide(resumed, name, Resume::from(whole / "checkpoint-3"));
    expect_same_checkpoint(resumed / "checkpoint-6", whole / "checkpoint-6", "with " + name);
  }
}

class Child {
 public:
  Child(const fs::path& run, int64_t save_steps, const std::string& how, const fs::path& errors) {
    const std::string program = std::string(GRADUS_BINARY_DIR) + "/bin/crash_run",
                      steps = std::to_string(save_steps), folder = run.string();
    std::vector<char*> arguments;
    for (const std::string* each : {&program, &folder, &steps, &how})
      arguments.push_back(const_cast<char*>(each->c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0644);
    const int failed =
        ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) throw std::runtime_error(program + " did not start");
  }
  ~Child() { kill_now(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// The exit code, or nothing when `limit` has passed and it still runs.
  std::optional<int> wait_for(std::chrono::milliseconds limit) {
    const auto until = std::chrono::steady_clock::now() + limit;
    int status = 0;
    while (pid_ > 0) {
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      if (std::chrono::steady_clock::now() >= until) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::nullopt;
  }
  void send(int signal) const { ::kill(pid_, signal); }
  pid_t process() const { return pid_; }
  void kill_now() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

TEST_F(ResumeRuns, SurviveAKillAtAnyMoment) {
  const auto whole = folder_ / "whole";
  ASSERT_EQ(train(whole, 1000, 100, Resume::none()), 60);
  std::mt19937 random(std::random_device{}());
  const int kills_wanted = on_gpu() ? 12 : 50;  // a start takes seconds there
  const auto errors = folder_ / "errors.txt";
  // Kills come at any moment of a run, however fast this machine is: later after one that came
  // before anything new was saved, earlier after one that came too late.
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(Child(folder_ / "timed", 1, "plain", errors).wait_for(std::chrono::minutes(2)), 0)
      << read_file(errors);
  std::chrono::duration<double> latest = std::chrono::steady_clock::now() - begin;
  std::uniform_real_distribution<double> share(0.1, 1);
  int kills = 0, finished = 0, round = 0;
  std::set<int64_t> newest_at_kill;
  while (kills < kills_wanted || finished < round) {
    const auto run = folder_ / fmt::format("killed-{}", ++round);
    const int64_t save_steps = 1 + round % 3;
    int64_t newest_before = 0;
    for (bool running = true; running && !HasFailure();) {
      Child child(run, save_steps, "plain", errors);
      const bool kills_it = kills < kills_wanted;
      const auto limit =
          kills_it ? std::chrono::duration_cast<std::chrono::milliseconds>(latest * share(random))
                   : std::chrono::milliseconds(60000);
      if (const auto code = child.wait_for(limit)) {
        ASSERT_EQ(*code, 0) << read_file(errors);
        running = false;
        ++finished;
        if (kills_it) latest *= 0.8;
      } else {
        child.kill_now();
        ++kills;
      }
      const auto all = list_checkpoints(run);
      for (const auto& each : all) {
        const auto report = verify_checkpoint(each.path, Verify::full);
        EXPECT_TRUE(report.complete() && report.has_manifest)
            << each.path << ": "
            << (report.problems.empty() ? "no manifest" : report.problems.front());
      }
      const int64_t newest = all.empty() ? 0 : all.back().step;
      EXPECT_GE(newest, newest_before) << "a checkpoint was lost";
      if (running && newest == newest_before) latest *= 1.25;
      EXPECT_GE(int64_t(all.size()), std::min<int64_t>(3, newest / save_steps))
          << "older ones were lost";
      newest_before = newest;
      newest_at_kill.insert(newest);
    }
    ASSERT_FALSE(HasFailure());
    expect_same_checkpoint(run / "checkpoint-60", whole / "checkpoint-60",
                           fmt::format("after kills, saving every {}", save_steps));
    for (const auto& entry : fs::directory_iterator(run))
      EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp-")) << entry.path();
    fs::remove_all(run);
  }
  EXPECT_GT(newest_at_kill.size(), on_gpu() ? 2U : 5U)
      << "the kills came too early or too late to try anything";
}

TEST_F(ResumeRuns, KeepTheirCheckpointsWhenAFileMayNotGrow) {
  const auto run = folder_ / "run", errors = folder_ / "errors.txt";
  Child child(run, 3, "fsize", errors);
  EXPECT_EQ(child.wait_for(std::chrono::seconds(60)), 3);
  const auto text = read_file(errors);
  EXPECT_NE(text.find("a checkpoint could not be saved: "), std::string::npos) << text;
  EXPECT_NE(text.find("File too large"), std::string::npos) << text;
  EXPECT_NE(text.find("[G-CKPT-6]"), std::string::npos) << text;
  const auto left = list_checkpoints(run);
  ASSERT_EQ(left.size(), 2U);
  for (const auto& each : left) EXPECT_TRUE(verify_checkpoint(each.path, Verify::full).complete());
  EXPECT_EQ(train(run, 1000, 100, Resume::last()), 60) << "and a later start goes on";
}

TEST_F(ResumeRuns, GoOnAfterASaveThatFailed) {
  const auto whole = folder_ / "whole", run = folder_ / "run", errors = folder_ / "errors.txt";
  ASSERT_EQ(train(whole, 1000, 100, Resume::none()), 60);
  Child child(run, 3, "once", errors);
  EXPECT_EQ(child.wait_for(std::chrono::seconds(60)), 0) << read_file(errors);
  EXPECT_FALSE(fs::exists(run / "checkpoint-9"));
  EXPECT_EQ(list_checkpoints(run).size(), 19U) << "all others are there";
  expect_same_checkpoint(run / "checkpoint-60", whole / "checkpoint-60", "after a failed save");
}

// Whether the child says on stderr that an evaluation is under way.
bool is_evaluating(const fs::path& errors) {
  for (int i = 0; i < 60'000; ++i) {
    if (fs::exists(errors) && read_file(errors).find("evaluating") != std::string::npos)
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST_F(ResumeRuns, AreBitEqualWhenASignalInterruptsAnEvaluation) {
  const auto whole = folder_ / "whole", run = folder_ / "run", errors = folder_ / "errors.txt";
  ASSERT_EQ(train(whole, 1000, 100, Resume::none()), 60);
  for (const int64_t save_steps : {7, 4}) {
    fs::remove_all(run);
    fs::remove(errors);
    Child child(run, save_steps, "slow", errors);
    ASSERT_TRUE(is_evaluating(errors));
    child.send(SIGTERM);  // twice, as `timeout` does
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    child.send(SIGTERM);
    EXPECT_EQ(child.wait_for(std::chrono::seconds(60)), 128 + SIGTERM) << read_file(errors);
    EXPECT_EQ(list_checkpoints(run).back().step, 7);
    EXPECT_TRUE(verify_checkpoint(run / "checkpoint-7", Verify::full).complete());
    const auto state = comparable_state(run / "checkpoint-7");
    EXPECT_TRUE(state["best_metric"].is_null()) << "the evaluation was not finished";
    ASSERT_EQ(train(run, save_steps, 100, Resume::last()), 60);
    expect_same_checkpoint(run / "checkpoint-60", whole / "checkpoint-60",
                           fmt::format("saving every {}", save_steps));
  }
}

TEST_F(ResumeRuns, ASignalThatIsIgnoredStaysIgnored) {
  const auto run = folder_ / "run", errors = folder_ / "errors.txt";
  const auto former = ::signal(SIGHUP, SIG_IGN);  // as nohup does
  Child child(run, 7, "slow", errors);
  ::signal(SIGHUP, former);
  ASSERT_TRUE(is_evaluating(errors));
  child.send(SIGHUP);
  child.send(SIGINT);
  EXPECT_EQ(child.wait_for(std::chrono::seconds(60)), 128 + SIGINT) << read_file(errors);
}

TEST_F(ResumeRuns, OfTwoProcessesInOneFolderOneIsRefused) {
  const auto whole = folder_ / "whole", run = folder_ / "run", errors = folder_ / "errors.txt";
  ASSERT_EQ(train(whole, 1000, 100, Resume::none()), 60);
  Child first(run, 4, "slow", errors);
  ASSERT_TRUE(is_evaluating(errors));
  Child second(run, 4, "plain", folder_ / "second.txt");
  EXPECT_EQ(second.wait_for(std::chrono::seconds(60)), 3);
  const auto text = read_file(folder_ / "second.txt");
  EXPECT_NE(text.find(fmt::format("{} is in use: process {} trains into it [G-CKPT-7]",
                                  run.string(), first.process())),
            std::string::npos)
      << text;
  first.kill_now();
  Child third(run, 4, "plain", errors);
  EXPECT_EQ(third.wait_for(std::chrono::seconds(60)), 0) << read_file(errors);
  expect_same_checkpoint(run / "checkpoint-60", whole / "checkpoint-60", "after a kill");
  EXPECT_FALSE(fs::exists(run / ".gradus.lock"));
}

TEST_F(ResumeRuns, KeepTheirCheckpointsWhenTheFolderMayNotBeWritten) {
  const auto run = folder_ / "run", errors = folder_ / "errors.txt";
  Child child(run, 3, "readonly", errors);
  EXPECT_EQ(child.wait_for(std::chrono::seconds(60)), 3);
  ::chmod(run.c_str(), 0755);
  const auto text = read_file(errors);
  EXPECT_NE(text.find("Permission denied"), std::string::npos) << text;
  EXPECT_NE(text.find((run / ".tmp-checkpoint-15").string()), std::string::npos) << text;
  const auto left = list_checkpoints(run);
  ASSERT_EQ(left.size(), 2U);
  for (const auto& each : left) EXPECT_TRUE(verify_checkpoint(each.path, Verify::full).complete());
}

}  // namespace
}  // namespace gradus::testing
