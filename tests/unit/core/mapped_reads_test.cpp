#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "../error_of.h"
#include "core/mapped_file.h"
#include "core/mapped_reads.h"
#include "core/open_file.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

class MappedReadsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("gradus-mapped-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    std::ofstream(path_ = folder_ / "data") << std::string(kSize, '\1');
  }
  void TearDown() override { fs::remove_all(folder_); }

  static int64_t sum(const MappedFile& file) {
    const volatile char* bytes = file.data();  // or nothing is read where nobody uses the sum
    int64_t total = 0;
    for (size_t i = 0; i < file.size(); ++i) total += bytes[i];
    return total;
  }

  static constexpr size_t kSize = size_t{1} << 20;
  fs::path folder_, path_;
};

TEST_F(MappedReadsTest, AFileThatIsCutIsAnErrorThatNamesIt) {
  for (const auto access : {MappedFile::Access::read_only, MappedFile::Access::private_copy}) {
    std::ofstream(path_) << std::string(kSize, '\1');
    const MappedFile file(path_, access);
    EXPECT_EQ(read_mapped([&] { return sum(file); }), int64_t(kSize));
    fs::resize_file(path_, 5000);
    expect_error([&] { read_mapped([&] { return sum(file); }); }, "G-IO-4",
                 {path_.string(), "shorter"});
    expect_error([&] { read_mapped([&] { return sum(file); }); }, "G-IO-4", {path_.string()});
  }
  const MappedFile other(path_);  // those that were cut are gone
  EXPECT_EQ(read_mapped([&] { return sum(other); }), 5000);
}

TEST_F(MappedReadsTest, OtherThreadsMayDoTheReading) {
  const MappedFile file(path_);
  fs::resize_file(path_, 0);
  expect_error(
      [&] {
        read_mapped([&] {
          std::thread one([&] { sum(file); }), other([&] { sum(file); });
          one.join();
          other.join();
        });
      },
      "G-IO-4", {path_.string()});
}

TEST_F(MappedReadsTest, AnErrorAboutTheZerosGivesWay) {
  const MappedFile file(path_);
  fs::resize_file(path_, 0);
  const auto parse = [&] {
    if (sum(file) == 0) throw Error("G-JSON-1", ErrorKind::data, "not JSON");
  };
  expect_error([&] { read_mapped(parse); }, "G-IO-4", {"shorter"});
}

TEST_F(MappedReadsTest, OtherErrorsGoThrough) {
  const auto fail = [] { throw Error("G-JSON-1", ErrorKind::data, "not JSON"); };
  expect_error([&] { read_mapped(fail); }, "G-JSON-1", {});
}

TEST_F(MappedReadsTest, OutsideOfItTheProcessEndsAsEver) {
  const MappedFile file(path_);
  read_mapped([] {});
  fs::resize_file(path_, 0);
  EXPECT_EXIT(sum(file), testing::KilledBySignal(SIGBUS), "became shorter while");
}

TEST_F(MappedReadsTest, SpecialFilesAreRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0666), 0);
  expect_error([&] { open_for_reading(folder_ / "fifo"); }, "G-IO-1", {"it is a FIFO"});
  expect_error([&] { open_for_reading("/dev/zero"); }, "G-IO-1", {"it is a device"});
  expect_error([&] { open_for_reading(folder_); }, "G-IO-1", {"Is a directory"});
  expect_error([&] { open_for_reading(folder_ / "none"); }, "G-IO-1", {"No such file"});
  expect_error([&] { MappedFile{folder_ / "fifo"}; }, "G-IO-1", {"it is a FIFO"});
}

}  // namespace
}  // namespace gradus
