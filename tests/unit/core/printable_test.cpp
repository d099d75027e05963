#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/core/printable.h>
#include <gtest/gtest.h>

#include <vector>

namespace gradus {
namespace {

TEST(Printable, LeavesTextOfAnyLanguageAlone) {
  for (const char* text :
       {"", "plain text, 100 %", "a\nb\tc", "Grüße, 日本語", "😀", "\xc2\xa0nbsp"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, WritesOutWhatATerminalObeys) {
  EXPECT_EQ(printable("\x1b[31mred\x07"), "\\x1b[31mred\\x07");
  EXPECT_EQ(printable("a\rb\x7f"), "a\\x0db\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b\x32J"), "\\x9b2J") << "CSI as one character";
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "abc"),
            "\\u202eabc")
      << "the override of direction";
  EXPECT_EQ(printable("\xe2\x81\xa6x\xe2\x80\xa8"), "\\u2066x\\u2028");
}

TEST(ErrorText, HasItsIdAtTheEndOfTheFirstLine) {
  const Error error("G-MODEL-8", ErrorKind::model, "does not fit\na | table", "Do this.");
  EXPECT_STREQ(error.what(), "gradus: does not fit [G-MODEL-8]\na | table\n  Do this.");
}

TEST(Printable, WritesOutWhatIsNotUtf8) {
  EXPECT_EQ(printable("a\xff"
                      "b"),
            "a\\xffb");
  EXPECT_EQ(printable("\x9b"), "\\x9b");
  EXPECT_EQ(printable("\xe2\x80"), "\\xe2\\x80") << "cut";
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
}

TEST(Printable, IsWhatErrorsAndTheLogSay) {
  const Error error("G-IO-1", ErrorKind::io, "tensor '\x1b[2J'", "Say \x9b hello.\nAgain.");
  EXPECT_STREQ(error.what(), "gradus: tensor '\\x1b[2J' [G-IO-1]\n  Say \\x9b hello.\n  Again.");
  EXPECT_EQ(error.message(), "tensor '\\x1b[2J'");

  struct Lines : LogSink {
    void message(LogLevel, std::string_view line) override { said.emplace_back(line); }
    void print(std::string_view) override {}
    std::vector<std::string> said;
  };
  const auto lines = std::make_shared<Lines>();
  const auto former = set_log_sink(lines);
  log_warning("unexpected key \x1b]0;owned\x07");
  set_log_sink(former);
  EXPECT_EQ(lines->said, std::vector<std::string>{"unexpected key \\x1b]0;owned\\x07"});
}

}  // namespace
}  // namespace gradus
