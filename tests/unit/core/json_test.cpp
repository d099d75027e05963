#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/parsed_json.h"

namespace gradus {
namespace {

TEST(Json, KeepsNanAndInfinityAsPythonWritesThem) {
  const auto value = parse_json(R"({"a": NaN, "b": [-Infinity, Infinity], "c": "NaN", "d": -1})");
  EXPECT_TRUE(std::isnan(value["a"].get<double>()));
  EXPECT_EQ(value["c"], "NaN");
  EXPECT_EQ(dump_json(value), R"({"a": NaN, "b": [-Infinity, Infinity], "c": "NaN", "d": -1})");
}

TEST(Json, WritesNumbersAsPythonDoes) {
  const std::pair<double, const char*> cases[] = {
      {5e-5, "5e-05"}, {0.1, "0.1"},
      {3, "3.0"},      {1e16, "1e+16"},
      {1e-8, "1e-08"}, {0.0001, "0.0001"},
      {0, "0.0"},      {123456789, "123456789.0"},
      {-2.5, "-2.5"},  {1.0 / 12, "0.08333333333333333"},
      {1e22, "1e+22"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(json_number(value), text);
}

TEST(Json, IndentsAndEscapesAsPythonDoes) {
  EXPECT_EQ(
      dump_json(nlohmann::json{{"b", {1, 2}}, {"a", nlohmann::json::object()}, {"t", "é\n\"😀"}},
                2),
      "{\n  \"a\": {},\n  \"b\": [\n    1,\n    2\n  ],\n  \"t\": "
      "\"\\u00e9\\n\\\"\\ud83d\\ude00\"\n}");
}

TEST(Json, RefusesWhatIsNestedTooDeeply) {
  EXPECT_NO_THROW(parse_json(std::string(1000, '[') + std::string(1000, ']')));
  std::string quoted(5002, '[');
  quoted.front() = quoted.back() = '"';
  EXPECT_NO_THROW(parse_json(quoted));
  std::string nested(200000, '[');
  nested.insert(0, "{\"a\": ").append(200000, ']').append("}");
  try {
    parse_json(nested, "x.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(
        error.message().find(
            "x.json is not usable JSON at line 1, column 1006: nested deeper than 1000 levels"),
        std::string::npos)
        << error.what();
  }
}

TEST(Json, RefusesValuesThatTakeFarMoreThanTheirText) {
  std::string text = "[0";
  for (int i = 0; i < 12'000'000; ++i) text += ",0";
  text += "]";
  try {
    parse_json(text, "x.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-JSON-1");
    EXPECT_NE(error.message().find("x.json is not usable JSON: its 12000001 values take"),
              std::string::npos)
        << error.what();
  }
  // In a text they are no values.
  EXPECT_NO_THROW(parse_json("\"" + text + "\""));
}

TEST(Json, ObjectsThatKeepTheirOrderMayHaveManyMembers) {
  std::string text = R"({"b": 1, "a": [2, {"z": null, "y": -1.5}], "b": true})";
  EXPECT_EQ(dump_json(parse_ordered_json(text)),
            R"({"b": true, "a": [2, {"z": null, "y": -1.5}]})");
  text = "{";
  for (int i = 0; i < 100'000; ++i) text += "\"k" + std::to_string(i) + "\": NaN, ";
  text += R"("k5": 7, "k99999": "last"})";
  const auto many = parse_ordered_json(text);  // 20 seconds where each is compared with all others
  ASSERT_EQ(many.size(), 100'000u);
  EXPECT_EQ(many.begin().key(), "k0");
  EXPECT_EQ(std::next(many.begin(), 5).value(), 7);
  EXPECT_EQ(std::prev(many.end()).value(), "last");
  EXPECT_TRUE(ordered_json_or_discarded("{\"a\": }").is_discarded());
  EXPECT_THROW(parse_ordered_json("{\"a\": }"), Error);
}

TEST(Json, ErrorNamesFileLineAndColumn) {
  try {
    parse_json("{\"a\": 1,\n \"b\": }", "x.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-JSON-1");
    EXPECT_NE(error.message().find("x.json is not valid JSON at line 2"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace gradus
