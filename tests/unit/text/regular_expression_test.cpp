#include "text/regular_expression.h"

#include <gtest/gtest.h>

#include "../error_of.h"

namespace gradus::text {
namespace {

using Match = RegularExpression::Match;

TEST(RegularExpression, IsSearchedOrMatchesAll) {
  EXPECT_TRUE(RegularExpression("[0-9]+").matches("it is 12."));
  EXPECT_FALSE(RegularExpression("[0-9]+", Match::whole).matches("it is 12."));
  EXPECT_TRUE(RegularExpression("a|ab", Match::whole).matches("ab"));
  EXPECT_FALSE(RegularExpression("x").matches(""));
}

TEST(RegularExpression, KnowsWhatPythonKnows) {
  const RegularExpression all_but_head(R"(^(?!.*lm_head).*_proj$)", Match::whole);
  EXPECT_TRUE(all_but_head.matches("model.layers.0.q_proj"));
  EXPECT_FALSE(all_but_head.matches("lm_head.q_proj"));
  EXPECT_TRUE(RegularExpression(R"((?P<word>\w+) (?P=word))").matches("so so"));
  EXPECT_TRUE(RegularExpression(R"((?<=<b>)\d+(?=</b>))").matches("<b>7</b>"));
  EXPECT_TRUE(RegularExpression(R"((?s)^<think>.*</think>)").matches("<think>a\nb</think> c"));
}

TEST(RegularExpression, GivesGroups) {
  const auto found = RegularExpression(R"(h\.(\d+)\.(x)?)").find("model.h.12.attn", 2);
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, (std::vector<std::string>{"h.12.", "12", ""}));
}

TEST(RegularExpression, ReadsLongTextsWhole) {
  std::string text(5'000'000, 'a');
  const RegularExpression expression("^(a|b)*$");
  EXPECT_TRUE(expression.matches(text));
  text.back() = 'c';
  EXPECT_FALSE(expression.matches(text));
}

TEST(RegularExpression, SaysWhatIsWrong) {
  expect_error([] { RegularExpression("("); }, "G-TEXT-13", {"'(' is not a regular expression"});
  expect_error([] { RegularExpression(std::string(1'000'000, '(')); }, "G-TEXT-13",
               {"is not a regular expression"});
  expect_error([] { RegularExpression(R"(^(a|a)*\1b$)").matches(std::string(200, 'a')); },
               "G-TEXT-13", {"the search for", "given up"});
}

}  // namespace
}  // namespace gradus::text
