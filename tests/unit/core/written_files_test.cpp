// Files that are written: under names that nobody can prepare, never through a link.
#include <fcntl.h>
#include <gradus/core/files.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "../error_of.h"
#include "core/append_file.h"
#include "core/temporary_name.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

class WrittenFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("gradus-written-" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ofstream(victim()) << "precious";
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path victim() const { return folder_ / "victim"; }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

  fs::path folder_;
};

TEST_F(WrittenFiles, ALinkAtAGuessedTemporaryNameIsNotFollowed) {
  const auto file = folder_ / "train_results.json";
  const auto process = std::to_string(getpid());
  fs::create_symlink(victim(), file.string() + ".tmp-" + process);
  fs::create_symlink(victim(), folder_ / (".tmp-train_results.json-" + process));
  write_file_atomically(file, "{}");
  EXPECT_EQ(read_file(file), "{}");
  EXPECT_EQ(read_file(victim()), "precious");
}

TEST_F(WrittenFiles, ALinkOfTheFinalNameIsReplacedNotWrittenThrough) {
  const auto file = folder_ / "state.json";
  fs::create_symlink(victim(), file);
  write_file_atomically(file, "new");
  EXPECT_EQ(read_file(victim()), "precious");
  EXPECT_FALSE(fs::is_symlink(file));
  EXPECT_EQ(names(), (std::vector<std::string>{"state.json", "victim"})) << "nothing else is left";
}

TEST_F(WrittenFiles, AppendingDoesNotFollowALink) {
  fs::create_symlink(victim(), folder_ / "log.jsonl");
  expect_error([&] { AppendFile file(folder_ / "log.jsonl"); }, "G-IO-2",
               {(folder_ / "log.jsonl").string() + ": a symbolic link has this name"});
  EXPECT_EQ(read_file(victim()), "precious");
}

TEST_F(WrittenFiles, OverwritingChangesTheFileThatWasOpened) {
  const auto path = folder_ / "tokens.bin";
  AppendFile file(path);
  file.append("0123456789");
  file.flush();
  fs::remove(path);
  fs::create_symlink(victim(), path);
  file.overwrite("ab");
  EXPECT_EQ(read_file(victim()), "precious");
  file.append("x");
  file.flush();  // still at the end
  EXPECT_EQ(read_file(victim()), "precious");
}

TEST_F(WrittenFiles, APipeThatTheUserNamesIsWrittenToAndStays) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_FALSE(write_named_file(pipe, "picture"));
  char got[16] = {};
  EXPECT_EQ(::read(reader, got, sizeof got), 7);
  EXPECT_STREQ(got, "picture");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_TRUE(write_named_file(folder_ / "new", "a file"));
  EXPECT_EQ(read_file(folder_ / "new"), "a file");
  expect_error([] { write_named_file("/dev/full", "x"); }, "G-IO-2",
               {"cannot write /dev/full: No space left on device"});
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(WrittenFiles, ALinkToAnOpenFileIsWrittenThroughAndStays) {
  const int opened = ::open(victim().c_str(), O_WRONLY);  // as with `> file` of a shell
  ASSERT_GE(opened, 0);
  const auto link = folder_ / "stdout";
  fs::create_symlink("/proc/self/fd/" + std::to_string(opened), link);
  EXPECT_FALSE(write_named_file(link, " picture"));
  ::close(opened);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(read_file(victim()), "precious picture");
  fs::remove(link);
  fs::create_symlink(victim(), link);
  EXPECT_TRUE(write_named_file(link, "a file"));
  EXPECT_FALSE(fs::is_symlink(link));
  EXPECT_EQ(read_file(victim()), "precious picture");
}

// As with `2> file`: what is said afterwards follows.
TEST_F(WrittenFiles, TheFileBehindStandardErrorKeepsItsPlace) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int opened = ::open(victim().c_str(), O_WRONLY | O_TRUNC);
    ::dup2(opened, STDERR_FILENO);
    try {
      write_named_file("/dev/stderr", "picture");
    } catch (const Error&) {
      ::_exit(1);
    }
    ::_exit(::write(STDERR_FILENO, " said", 5) == 5 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(victim()), "picture said");
}

TEST_F(WrittenFiles, APipeThatIsFullIsWaitedFor) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  const std::string picture(size_t(1) << 20, 'x');
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    try {
      write_named_file("/dev/stdout", picture);
    } catch (const Error&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  ::fcntl(ends[0], F_SETFL, 0);  // this end waits
  std::string got(picture.size(), ' ');
  size_t size = 0;
  for (ssize_t n = 1; n > 0 && size < got.size(); size += size_t(std::max<ssize_t>(n, 0)))
    n = ::read(ends[0], got.data() + size, got.size() - size);
  ::close(ends[0]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(got, picture);
}

TEST_F(WrittenFiles, AFailedWriteLeavesNothingBehind) {
  fs::create_directories(folder_ / "taken" / "inside");
  expect_error([&] { write_file_atomically(folder_ / "taken", "x"); }, "G-IO-2",
               {"cannot write " + (folder_ / "taken").string() + ": Is a directory"});
  EXPECT_EQ(names(), (std::vector<std::string>{"taken", "victim"}));
  expect_error([&] { write_file_atomically(folder_ / "none" / "x", "x"); }, "G-IO-2",
               {"No such file or directory"});
}

TEST_F(WrittenFiles, AFolderThatCannotBeMadeSaysWhy) {
  fs::create_symlink(folder_ / "nowhere", folder_ / "link");
  for (const auto& path : {folder_ / "link", folder_ / "link" / "inside"})
    EXPECT_EQ(message_of("G-IO-3", [&] { make_directory(path); }),
              "cannot create the folder " + path.string() + ": the link " +
                  (folder_ / "link").string() + " leads to " + (folder_ / "nowhere").string() +
                  ", which does not exist");
  EXPECT_EQ(message_of("G-IO-3", [&] { make_directory(victim() / "inside"); }),
            "cannot create the folder " + (victim() / "inside").string() + ": " +
                victim().string() + " is a file");
}

TEST(TemporaryNames, AreNeverTheSame) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(temporary_name("model.safetensors"));
  EXPECT_EQ(names.size(), 1000U);
  EXPECT_TRUE(
      names.begin()->starts_with(".tmp-model.safetensors-" + std::to_string(getpid()) + "-x"));
  EXPECT_LE(temporary_name(std::string(255, 'a')).size(), 255U);
}

TEST(TemporaryNames, TellWhoseTheyAre) {
  const std::string token = "-x0123456789abcdef";
  EXPECT_FALSE(is_abandoned_temporary(temporary_name("a"))) << "our own";
  EXPECT_FALSE(is_abandoned_temporary(".tmp-a-1" + token)) << "process 1 lives";
  EXPECT_TRUE(is_abandoned_temporary(".tmp-a-999999999" + token));
  EXPECT_TRUE(is_abandoned_temporary(".tmp-a-" + std::to_string(getpid()) + token))
      << "of a process before us that had our number";
  EXPECT_FALSE(is_abandoned_temporary(".tmp-a-999999999")) << "somebody else's file";
  EXPECT_FALSE(is_abandoned_temporary(".tmp-notes"));
  EXPECT_FALSE(is_abandoned_temporary("a-999999999" + token));
  EXPECT_TRUE(is_abandoned_temporary(".tmp-checkpoint-5-999999999")) << "of an earlier version";
  EXPECT_TRUE(is_abandoned_temporary(".tmp-model"));
}

TEST(TemporaryNames, OfAProcessThatNobodyHasAskedForAreAbandoned) {
  const auto child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ended{};
  ::waitid(P_PID, id_t(child), &ended, WEXITED | WNOWAIT);  // it stays a zombie
  EXPECT_TRUE(is_abandoned_temporary(".tmp-a-" + std::to_string(child) + "-x0123456789abcdef"));
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace gradus
