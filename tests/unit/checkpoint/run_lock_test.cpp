// One process at a time trains into a folder.
#include "checkpoint/run_lock.h"

#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "../error_of.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

class RunLocks : public ::testing::Test {
 protected:
  RunLocks() : folder_(fs::temp_directory_path() / ("gradus-lock-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~RunLocks() override { fs::remove_all(folder_); }
  fs::path file() const { return folder_ / ".gradus.lock"; }

  fs::path folder_;
};

// Another process that locks a folder and waits to be killed.
class Other {
 public:
  explicit Other(const fs::path& folder) {
    int ready[2] = {};
    if (::pipe(ready) != 0) throw std::runtime_error("no pipe");
    process_ = ::fork();
    if (process_ == 0) {
      const RunLock lock(folder);
      [[maybe_unused]] const auto told = ::write(ready[1], "x", 1);
      while (true) ::pause();
    }
    char answer = 0;
    [[maybe_unused]] const auto heard = ::read(ready[0], &answer, 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Other() { kill(); }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(std::exchange(process_, 0), nullptr, 0);
  }
  std::string number() const { return std::to_string(process_); }

 private:
  pid_t process_ = 0;
};

TEST_F(RunLocks, AnotherProcessIsRefusedAndNamed) {
  Other other(folder_);
  expect_error([&] { RunLock lock(folder_); }, "G-CKPT-7",
               {folder_.string() + " is in use: process " + other.number() + " trains into it",
                "--output_dir"});
  other.kill();
  EXPECT_TRUE(fs::exists(file())) << "a killed process leaves the file";
  {
    const RunLock lock(folder_);
    EXPECT_TRUE(read_file(file()).starts_with(std::to_string(::getpid()) + " "));
  }
  EXPECT_TRUE(fs::is_empty(folder_)) << "the file goes with the lock";
}

TEST_F(RunLocks, OneProcessMayAskTwice) {
  RunLock first(folder_);
  {
    const RunLock second(folder_ / ".");
  }
  EXPECT_TRUE(fs::exists(file())) << "the first still holds it";
  first = RunLock();
  EXPECT_FALSE(fs::exists(file()));
  const RunLock again(folder_);
  EXPECT_TRUE(fs::exists(file()));
}

TEST_F(RunLocks, AreNotInherited) {
  const RunLock lock(folder_);
  const auto command = "for f in /proc/$$/fd/*; do readlink $f; done | grep -q gradus.lock";
  EXPECT_NE(std::system(command), 0) << "a started program holds no lock";
}

TEST_F(RunLocks, ALinkOrAFolderOfTheNameIsOnlyAWarning) {
  struct Listener : LogSink {
    void message(LogLevel, std::string_view line) override { lines.emplace_back(line); }
    void print(std::string_view) override {}
    std::vector<std::string> lines;
  };
  const auto listener = std::make_shared<Listener>();
  const auto former = set_log_sink(listener);
  std::ofstream(folder_ / "victim") << "precious";
  fs::create_symlink(folder_ / "victim", file());
  {
    const RunLock lock(folder_);
  }
  set_log_sink(former);
  EXPECT_EQ(read_file(folder_ / "victim"), "precious");
  EXPECT_TRUE(fs::is_symlink(file())) << "not ours to remove";
  ASSERT_EQ(listener->lines.size(), 1U);
  EXPECT_NE(listener->lines[0].find("cannot be locked"), std::string::npos) << listener->lines[0];
}

}  // namespace
}  // namespace gradus
