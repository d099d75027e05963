#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/sources.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "core/temporary_name.h"
#include "data/sources/column_kind.h"
#include "data/sources/json_row.h"
#include "data/sources/json_scan.h"
#include "data/sources/ordered_jobs.h"
#include "temporary_folder.h"

namespace gradus {
namespace {

std::shared_ptr<Dataset> numbers(int64_t count) {
  std::vector<Example> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back({{"n", Value(i)}});
  return from_examples(std::move(rows));
}

std::vector<Example> twice(std::vector<Example> rows) {
  std::vector<Example> out;
  for (const auto& row : rows) {
    const auto n = row.at("n").integer();
    out.push_back({{"n", Value(n)}, {"ids", Value(Value::Ints(size_t(n % 5), n))}});
    out.push_back({{"n", Value(n)}, {"ids", Value()}});
  }
  return out;
}

TEST(MapRows, KeepsTheOrderWithThreads) {
  const auto mapped =
      map_rows(*numbers(1000), twice, {.batch_size = 7, .threads = 4, .description = ""});
  ASSERT_EQ(mapped->size(), 2000);
  for (int64_t i = 0; i < 2000; ++i) EXPECT_EQ(mapped->get(i).at("n").integer(), i / 2);
}

TEST(MapRows, RunsCutBatchesAsThePeersWorkersDo) {
  std::vector<int64_t> sizes;
  const auto count = [&](std::vector<Example> rows) {
    sizes.push_back(int64_t(rows.size()));
    return rows;
  };
  map_rows(*numbers(10), count, {.batch_size = 3, .runs = 3, .threads = 1, .description = ""});
  EXPECT_EQ(sizes, (std::vector<int64_t>{3, 1, 3, 3}));  // runs of 4, 3 and 3 rows
}

TEST(MapRows, NamesTheRowThatIsRefused) {
  const auto picky = [](std::vector<Example> rows) {
    for (const auto& row : rows)
      if (row.at("n").integer() == 13) throw Error("G-TASK-11", ErrorKind::data, "bad luck");
    return rows;
  };
  try {
    map_rows(*numbers(50), picky, {.batch_size = 7, .threads = 2, .description = ""});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "bad luck (row 13)");
    EXPECT_EQ(error.id(), "G-TASK-11");
  }
}

TEST(MapRows, TakesTheResultFromTheCache) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  std::atomic<int> calls = 0;
  const auto function = [&](std::vector<Example> rows) {
    ++calls;
    return twice(std::move(rows));
  };
  MapOptions options{.batch_size = 10,
                     .threads = 2,
                     .cache_key = "abc123",
                     .cache_dir = folder / "cache",
                     .description = ""};
  const auto first = map_rows(*numbers(50), function, options);
  EXPECT_EQ(calls, 5);
  const auto second = map_rows(*numbers(50), function, options);
  EXPECT_EQ(calls, 5);
  ASSERT_EQ(second->size(), 100);
  EXPECT_EQ(second->get(98).at("ids").ints(), (Value::Ints{49, 49, 49, 49}));
  EXPECT_TRUE(second->get(99).at("ids").is_null());
  std::filesystem::resize_file(folder / "cache/abc123.arrow", 40);  // a damaged cache is made again
  EXPECT_EQ(map_rows(*numbers(50), function, options)->size(), 100);
  EXPECT_EQ(calls, 10);
  options.overwrite_cache = true;
  map_rows(*numbers(50), function, options);
  EXPECT_EQ(calls, 15);
}

struct Warnings : LogSink {
  std::vector<std::string> lines;
  void message(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  void print(std::string_view) override {}
};

// What the rows hold, as text.
std::string text_of_rows(const Dataset& rows) {
  std::string text;
  for (int64_t i = 0; i < rows.size(); ++i)
    for (const auto& [name, value] : rows.get(i))
      text += name + dump_json(sources::json_from_value(value)) + "\n";
  return text;
}

// Every byte of a cache file counts, whether the source is kept or not.
TEST(MapRows, ADamagedCacheIsNamedAndMadeAnew) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  std::atomic<int> calls = 0;
  const MapFunction function = [&](std::vector<Example> rows) {
    ++calls;
    return twice(std::move(rows));
  };
  const MapOptions options{.batch_size = 10,
                           .threads = 1,
                           .cache_key = "k",
                           .cache_dir = folder.path(),
                           .description = ""};
  const std::shared_ptr<const Dataset> source = numbers(50);
  const auto expected = text_of_rows(*map_rows(source, function, options));
  const auto whole = content_of(folder / "k.arrow");
  const auto sink = std::make_shared<Warnings>();
  const auto before = set_log_sink(sink);
  for (size_t at = 0; at < whole.size(); at += 1 + whole.size() / 60) {
    for (const bool kept : {true, false}) {
      auto bytes = whole;
      bytes[at] = char(bytes[at] ^ 0x10);
      folder.write("k.arrow", bytes);
      calls = 0;
      sink->lines.clear();
      const auto rows =
          kept ? map_rows(source, function, options) : map_rows(*source, function, options);
      EXPECT_EQ(text_of_rows(*rows), expected) << "byte " << at;
      EXPECT_EQ(calls, 5) << "byte " << at << " was not missed";
      ASSERT_EQ(sink->lines.size(), 1u) << "byte " << at;
      EXPECT_NE(sink->lines[0].find("k.arrow"), std::string::npos) << sink->lines[0];
      EXPECT_EQ(content_of(folder / "k.arrow"), whole) << "byte " << at;
    }
  }
  set_log_sink(before);
}

// The batch of a row is compared with its checksum when the row is read, not before.
TEST(MapRows, ABlockIsCheckedWhenItIsUsed) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  std::atomic<int> calls = 0;
  const MapFunction function = [&](std::vector<Example> rows) {
    ++calls;
    return twice(std::move(rows));
  };
  const MapOptions options{.batch_size = 10,
                           .threads = 1,
                           .cache_key = "k",
                           .cache_dir = folder.path(),
                           .description = ""};
  const std::shared_ptr<const Dataset> source = numbers(50);
  map_rows(source, function, options);
  auto bytes = content_of(folder / "k.arrow");
  const Value::Ints last(4, 49);  // the ids of the last rows
  const std::string pattern(reinterpret_cast<const char*>(last.data()), 32);
  ASSERT_NE(bytes.rfind(pattern), std::string::npos);
  bytes[bytes.rfind(pattern)] = 50;
  folder.write("k.arrow", bytes);
  calls = 0;
  const auto rows = map_rows(source, function, options);
  for (int64_t i = 0; i < 80; ++i) rows->get(i);
  EXPECT_EQ(calls, 0);
  const auto before = set_log_sink(std::make_shared<Warnings>());
  EXPECT_EQ(rows->get(98).at("ids").ints(), last);
  set_log_sink(before);
  EXPECT_EQ(calls, 5);
}

// As gradus wrote it before there were checksums.
TEST(MapRows, ACacheWithoutChecksumsIsMadeAnew) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  int calls = 0;
  const MapFunction function = [&](std::vector<Example> rows) {
    ++calls;
    return rows;
  };
  const MapOptions options{
      .threads = 1, .cache_key = "k", .cache_dir = folder.path(), .description = ""};
  map_rows(*numbers(5), function, options);
  const auto whole = content_of(folder / "k.arrow");
  folder.write("k.arrow", whole.substr(0, whole.size() - 32 - 2 * 40));  // schema, one batch
  const auto sink = std::make_shared<Warnings>();
  const auto before = set_log_sink(sink);
  EXPECT_EQ(map_rows(*numbers(5), function, options)->size(), 5);
  set_log_sink(before);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(content_of(folder / "k.arrow"), whole);
  ASSERT_EQ(sink->lines.size(), 1u);
  EXPECT_NE(sink->lines[0].find("without the checksums"), std::string::npos) << sink->lines[0];
}

TEST(MapRows, CacheHoldsEveryKindAndWidensColumns) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  std::vector<Example> rows = {
      {{"a", Value(1)},
       {"b", Value()},
       {"c", Value("x")},
       {"d", Value(Value::Ints{})},
       {"t", Value(torch::arange(6).view({2, 3}))}},
      {{"a", Value(2)},
       {"b", Value(true)},
       {"c", Value()},
       {"d", Value(Value::Strings{"u"})},
       {"t", Value(torch::ones({}, torch::kBFloat16))}},
      {{"a", Value(2.5)},
       {"b", Value(false)},
       {"c", Value("y")},
       {"d", Value(Value::Strings{})},
       {"t", Value()}},
      {{"a", Value(NAN)}, {"e", Value::nested({{"k", {1, nullptr}}})}},
  };
  const auto identity = [](std::vector<Example> batch) { return batch; };
  const auto back = map_rows(
      *from_examples(rows), identity,
      {.batch_size = 1, .cache_key = "kinds", .cache_dir = folder.path(), .description = ""});
  ASSERT_EQ(back->size(), 4);
  EXPECT_EQ(back->get(0).at("a").number(), 1.0);
  EXPECT_TRUE(back->get(0).at("a").is_double());
  EXPECT_TRUE(std::isnan(back->get(3).at("a").number()));
  EXPECT_TRUE(back->get(0).at("b").is_null());
  EXPECT_TRUE(back->get(1).at("b").boolean());
  EXPECT_TRUE(back->get(0).at("d").strings().empty());
  EXPECT_EQ(back->get(1).at("d").strings(), (Value::Strings{"u"}));
  EXPECT_TRUE(torch::equal(back->get(0).at("t").tensor(), torch::arange(6).view({2, 3})));
  EXPECT_EQ(back->get(1).at("t").tensor().scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(back->get(2).at("e").is_null());
  EXPECT_EQ(back->get(3).at("e").json(), (nlohmann::ordered_json{{"k", {1, nullptr}}}));
}

TEST(MapRows, AnErrorLeavesNothingInTheCache) {
  const TemporaryFolder folder;
  const auto fails = [](std::vector<Example> rows) {
    if (rows.front().at("n").integer() >= 20) throw Error("G-TEST-1", ErrorKind::data, "bad row");
    return rows;
  };
  EXPECT_THROW(map_rows(*numbers(50), fails,
                        {.batch_size = 10,
                         .threads = 3,
                         .cache_key = "k",
                         .cache_dir = folder.path(),
                         .description = ""}),
               Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(MapRows, FilesOfProcessesThatAreGoneAreRemoved) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow, so there is no cache";
  const TemporaryFolder folder;
  const auto gone = [](const std::string& name) {
    return ".tmp-" + name + "-2000000000-x0123456789abcdef";
  };
  const auto old = folder.write(gone("a.arrow"), "x"), fresh = folder.write(gone("b.arrow"), "x"),
             mine = folder.write(temporary_name("c.arrow"), "x");
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  for (const auto& file : {old, mine}) std::filesystem::last_write_time(file, long_ago);
  map_rows(*numbers(5), twice, {.cache_key = "k", .cache_dir = folder.path(), .description = ""});
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(fresh));
  EXPECT_TRUE(std::filesystem::exists(mine));
}

TEST(OrderedJobs, FirstErrorInOrderWins) {
  int64_t next = 0;
  std::vector<int64_t> finished;
  const auto job = [&]() -> std::optional<sources::OrderedJob> {
    if (next == 40) return std::nullopt;
    const auto number = next++;
    return sources::OrderedJob{[number] {
                                 if (number == 11 || number == 12)
                                   throw std::runtime_error(std::to_string(number));
                               },
                               [&finished, number] { finished.push_back(number); }};
  };
  try {
    sources::run_in_order(4, job);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "11");
  }
  ASSERT_EQ(finished.size(), 11u);
  for (size_t i = 0; i < finished.size(); ++i) EXPECT_EQ(finished[i], int64_t(i));
}

TEST(JsonRow, MakesFlatListsAndTrees) {
  const auto row = sources::parse_json_row(
      R"({"i": [1, 2], "f": [1, 2.5], "s": ["a", "b"], "e": [], "m": [1, "a"], "n": [1, null],
    "o": {"k": [1, {"l": true}]}, "b": [true, false],
    "big": 18446744073709551615, "t": "\u00e4\ud83d\ude42", "x": null})",
      {});
  EXPECT_EQ(row.at("i").ints(), (Value::Ints{1, 2}));
  EXPECT_EQ(row.at("f").floats(), (Value::Floats{1, 2.5}));
  EXPECT_EQ(row.at("s").strings(), (Value::Strings{"a", "b"}));
  EXPECT_TRUE(row.at("e").ints().empty());
  EXPECT_EQ(row.at("m").json(), (nlohmann::ordered_json{1, "a"}));
  EXPECT_EQ(row.at("n").json(), (nlohmann::ordered_json{1, nullptr}));
  EXPECT_EQ(row.at("o").json(), nlohmann::ordered_json::parse(R"({"k": [1, {"l": true}]})"));
  EXPECT_EQ(row.at("b").ints(), (Value::Ints{1, 0}));
  EXPECT_EQ(row.at("big").number(), 18446744073709551615.0);
  EXPECT_EQ(row.at("t").str(), "ä🙂");
  EXPECT_TRUE(row.at("x").is_null());
  EXPECT_EQ(
      sources::parse_json_row(R"({"a": [[1, 2], [3]], "b": 2, "c": {"d": 1}})", {"b"}).names(),
      (std::vector<std::string>{"b"}));
  EXPECT_TRUE(std::isnan(sources::parse_json_row(R"({"a": NaN})", {}).at("a").number()));
  EXPECT_THROW(sources::parse_json_row(
                   "{\"a\": " + std::string(5000, '[') + std::string(5000, ']') + "}", {}),
               sources::NotARow);
  for (const auto* bad : {"", "{", "[1]", "1", "{\"a\": 1} x", "{\"a\" 1}", "{'a': 1}", "null"})
    EXPECT_THROW(sources::parse_json_row(bad, {}), sources::NotARow) << bad;
}

TEST(JsonRow, KeepsTheOrderOfKeys) {
  // A chat template writes tools as they stand.
  const char* rows[] = {R"({"tools": [{"type": "f", "name": "b", "a": 1}], "x": 1})",
                        R"({"tools": [{"type": "f", "name": "b", "a": 1}], "x": NaN})"};
  for (const auto* text : rows) {
    const auto row = sources::parse_json_row(text, {});
    EXPECT_EQ(row.at("tools").json().dump(), R"([{"type":"f","name":"b","a":1}])");
    EXPECT_EQ(row.names(), (std::vector<std::string>{"tools", "x"}));
  }
}

TEST(JsonScanner, FindsElementsFedByteByByte) {
  const auto rows_of = [](const std::string& text, std::optional<std::string> field) {
    std::vector<std::string> rows;
    sources::JsonScanner scanner(field, [&](int64_t start, int64_t end) {
      rows.push_back(text.substr(size_t(start), size_t(end - start)));
    });
    for (const char c : text) scanner.feed({&c, 1});
    if (const auto trouble = scanner.finish()) rows.push_back("! " + *trouble);
    return rows;
  };
  using Rows = std::vector<std::string>;
  EXPECT_EQ(rows_of(R"([{"a": "]}\""}, [1, [2]], "x,y", 12 ,null])", {}),
            (Rows{R"({"a": "]}\""})", "[1, [2]]", "\"x,y\"", "12", "null"}));
  EXPECT_EQ(rows_of("{\"a\":\n 1}\n{\"b\": {}} ", {}), (Rows{"{\"a\":\n 1}", "{\"b\": {}}"}));
  EXPECT_EQ(rows_of(R"({"x": {"data": [0]}, "data": [{"d": 1}, {}], "z": [9]})", "data"),
            (Rows{"{\"d\": 1}", "{}"}));
  EXPECT_EQ(rows_of("[]", {}), Rows{});
  EXPECT_EQ(rows_of("[{\"a\": 1}", {}).back().substr(0, 2), "! ");
  EXPECT_EQ(rows_of("}", {}).back(), "! a closing bracket without an opening one");
}

TEST(DataShow, DescribesColumnsAndRows) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 100; ++i)
    lines += "{\"text\": \"" + std::string(size_t(i), 'x') +
             "\", \"label\": " + std::to_string(i % 3) + ", \"ids\": [1, 2, 3]}\n";
  const auto report = data_show(folder.write("a.jsonl", lines), {.rows = 2});
  EXPECT_EQ(report["rows"], 100);
  EXPECT_EQ(report["columns"][0]["name"], "text");
  EXPECT_EQ(report["columns"][0]["lengths"]["max"], 99);
  int64_t counted = 0;
  for (const auto& bin : report["columns"][0]["lengths"]["histogram"])
    counted += bin["count"].get<int64_t>();
  EXPECT_EQ(counted, 100);
  EXPECT_EQ(report["columns"][1]["values"],
            (nlohmann::ordered_json{{"0", 34}, {"1", 33}, {"2", 33}}));
  EXPECT_EQ(report["columns"][2]["lengths"]["mean"], 3.0);
  EXPECT_EQ(report["first_rows"].size(), 2u);
  const auto text = format_data_show(report, 80);
  EXPECT_NE(text.find("100 rows"), std::string::npos);
  EXPECT_NE(text.find("list of int"), std::string::npos);
  EXPECT_NE(text.find("characters: min 0, mean 49.5, max 99"), std::string::npos) << text;
}

}  // namespace
}  // namespace gradus
