#include <gradus/core/byte_size.h>
#include <gtest/gtest.h>

namespace gradus {
namespace {

TEST(ByteSize, ReadsWhatHuggingfaceHubReads) {
  EXPECT_EQ(parse_byte_size("50GB"), 50'000'000'000u);
  EXPECT_EQ(parse_byte_size(" 5 MB "), 5'000'000u);
  EXPECT_EQ(parse_byte_size("1.5kb"), 1'500u);
  EXPECT_EQ(parse_byte_size("2TB"), 2'000'000'000'000u);
  EXPECT_EQ(parse_byte_size("500Mb"), 500'000'000u);
  EXPECT_EQ(parse_byte_size("1e3KB"), 1'000'000u);
}

TEST(ByteSize, ReadsPowersOf1024AndPlainBytes) {
  EXPECT_EQ(parse_byte_size("1GiB"), 1u << 30);
  EXPECT_EQ(parse_byte_size("2GIB"), 2147483648u);
  EXPECT_EQ(parse_byte_size("1.5 KiB"), 1536u);
  EXPECT_EQ(parse_byte_size("12345"), 12345u);
  EXPECT_EQ(parse_byte_size("12B"), 12u);
}

TEST(ByteSize, RefusesTheRest) {
  for (const char* wrong : {"", " ", "GB", "5XB", "-1GB", "0MB", "0.1", "5 G B", "5iB", "5G",
                            "nanMB", "infGB", "1e30TB", "5MBs", "0x10MB"})
    EXPECT_FALSE(parse_byte_size(wrong)) << wrong;
}

}  // namespace
}  // namespace gradus
