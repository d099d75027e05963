#include <gradus/core/files.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "../error_of.h"
#include "core/append_file.h"
#include "core/mapped_file.h"

namespace gradus {
namespace {

class DataFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("gradus-files-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const char* content) const {
    std::ofstream(folder_ / "data") << content;
    return folder_ / "data";
  }

  std::filesystem::path folder_;
};

TEST_F(DataFiles, AppendingKeepsWhatIsThereAndCutsWhatItIsTold) {
  const auto path = write("0123456789");
  {
    AppendFile file(path);
    file.append("ab");
    EXPECT_EQ(read_file(path), "0123456789") << "not flushed yet";
    file.flush();
    EXPECT_EQ(read_file(path), "0123456789ab");
  }
  AppendFile file(path, 4);
  file.append("cd");
  file.sync();
  EXPECT_EQ(read_file(path), "0123cd");
  file.overwrite("AB");
  file.append("e");
  file.flush();
  EXPECT_EQ(read_file(path), "AB23cde");
}

TEST_F(DataFiles, APartOfALineIsCutOffAndWholeLinesStay) {
  const auto path = write("one\ntwo\nthr");
  AppendFile file(path);
  file.drop_partial_line();
  EXPECT_EQ(read_file(path), "one\ntwo\n");
  file.drop_partial_line();
  file.append("three\n");
  file.flush();
  EXPECT_EQ(read_file(path), "one\ntwo\nthree\n");
}

TEST_F(DataFiles, TwoWritersDoNotOverwriteEachOther) {
  const auto path = write("");
  AppendFile one(path), other(path);
  one.append("a\n");
  one.flush();
  other.append("b\n");
  other.flush();
  one.append("c\n");
  one.flush();
  EXPECT_EQ(read_file(path), "a\nb\nc\n");
}

TEST_F(DataFiles, WhatCannotBeOpenedIsNamed) {
  const auto absent = folder_ / "absent" / "file";
  const auto text = absent.string() + ": No such file or directory";
  EXPECT_EQ(id_and_message_of([&] { AppendFile file(absent); }), "G-IO-2 cannot write " + text);
  EXPECT_EQ(id_and_message_of([&] { MappedFile file(absent); }), "G-IO-1 cannot read " + text);
  EXPECT_EQ(id_and_message_of([&] { MappedFile file(folder_); }),
            "G-IO-1 cannot read " + folder_.string() + ": Is a directory");
}

TEST_F(DataFiles, WritesToAPrivateMappingDoNotReachTheFile) {
  const auto path = write("abc");
  MappedFile copy(path, MappedFile::Access::private_copy);
  copy.data()[0] = 'X';
  EXPECT_EQ(std::string_view(copy.data(), copy.size()), "Xbc");
  EXPECT_EQ(read_file(path), "abc");
  EXPECT_EQ(MappedFile::from_bytes("12", "name")->path(), "name");
}

TEST_F(DataFiles, AMappingKnowsWhenItsFileBecameShorter) {
  const auto path = write("0123456789");
  std::filesystem::resize_file(path, 10);
  const MappedFile file(path);
  std::filesystem::resize_file(path, 4);
  EXPECT_EQ(file.shortened_to(), 4u);
  EXPECT_EQ(file.size(), 10u);
  const MappedFile empty(write(""));
  EXPECT_EQ(empty.size(), 0u);
  EXPECT_EQ(empty.shortened_to(), std::nullopt);
}

}  // namespace
}  // namespace gradus
