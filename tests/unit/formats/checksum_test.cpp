#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/formats/checksum.h>

#include <gtest/gtest.h>
#include <zlib.h>

#include <numeric>

#include "../../fuzz/mutator.h"
#include "formats/byte_readers.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

TEST(Checksum, IsTheOneOfZip) {
  EXPECT_EQ(checksum_of("123456789", 9), 0xCBF43926u);
  EXPECT_EQ(checksum_of("", 0), 0u);
  EXPECT_EQ(checksum_text(0xCBF43926u), "crc32:cbf43926");
}

TEST(Checksum, AgreesWithZlibForEveryLengthAndStart) {
  std::string data(1000, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = char(i * i * 31 + i / 7);
  for (size_t begin = 0; begin < 20; ++begin)
    for (size_t size = 0; begin + size <= 400; ++size)
      ASSERT_EQ(checksum_of(data.data() + begin, size),
                ::crc32(0, reinterpret_cast<const Bytef*>(data.data() + begin), uInt(size)))
          << begin << " " << size;
  for (const size_t cut : {0, 1, 63, 64, 65, 500, 999}) {
    Crc32 pieces, joined;
    pieces.update(data.data(), cut);
    joined.update(data.data(), cut);
    pieces.update(data.data() + cut, data.size() - cut);
    joined.append(checksum_of(data.data() + cut, data.size() - cut), data.size() - cut);
    EXPECT_EQ(pieces.value(), checksum_of(data.data(), data.size())) << cut;
    EXPECT_EQ(joined.value(), pieces.value()) << cut;
  }
}

TEST(Checksum, OfAFile) {
  const auto file = fs::path(testing::TempDir()) / "gradus_checksum";
  const std::string content(3'000'001, 'x');
  write_file_atomically(file, content);
  EXPECT_EQ(file_checksum(file),
            (WrittenFile{content.size(), checksum_of(content.data(), content.size())}));
  try {
    file_checksum(file / "none");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-IO-1");
  }
}

/// Every mutation of every fixture gives a result or an `Error`; anything else ends the program.
TEST(Mutations, OfTheFixturesNeverCrash) {
  std::vector<std::string> safetensors, torch_files;
  for (const auto& entry :
       fs::directory_iterator(fs::path(GRADUS_SOURCE_DIR) / "tests/parity/formats/fixtures")) {
    if (entry.path().extension() == ".safetensors")
      safetensors.push_back(read_file(entry.path()));
    else if (entry.path().extension() != ".json")
      torch_files.push_back(read_file(entry.path()));
  }
  ASSERT_EQ(safetensors.size(), 2u);
  ASSERT_EQ(torch_files.size(), 8u);
  fuzz::Mutator mutator(7);
  size_t read = 0, refused = 0;
  const auto attempt = [&](const auto& reader, const std::string& bytes) {
    try {
      reader(MappedFile::from_bytes(bytes, "mutated"));
      ++read;
    } catch (const Error& error) {
      EXPECT_TRUE(error.id().starts_with("G-ST-") || error.id().starts_with("G-PT-"))
          << error.what();
      ++refused;
    }
  };
  for (int i = 0; i < 4000; ++i) {
    attempt([](const auto& file) { read_safetensors(file); }, mutator.next(safetensors));
    attempt([](const auto& file) { read_torch_file(file); }, mutator.next(torch_files));
  }
  EXPECT_GT(read, 100u);
  EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace gradus
