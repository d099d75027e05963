// The rows that `datasets` gives for each form of file; see
// tests/parity/data/make_source_fixtures.py.
#include <gradus/core/json.h>
#include <gradus/data/sources.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "data/sources/column_kind.h"

namespace gradus {
namespace {

using nlohmann::json;

const std::filesystem::path kFolder =
    std::filesystem::path(GRADUS_SOURCE_DIR) / "tests/parity/data/sources";

bool same(const json& a, const json& b) {
  if (a.is_number() && b.is_number() && std::isnan(a.get<double>()) && std::isnan(b.get<double>()))
    return true;
  if (a.is_number_float() != b.is_number_float() && a.is_number() && b.is_number()) return false;
  if (a.type() != b.type() && !(a.is_number() && b.is_number())) return false;
  if (!a.is_structured()) return a == b;
  if (a.size() != b.size()) return false;
  if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin(), same);
  for (const auto& [key, value] : a.items())
    if (!b.contains(key) || !same(value, b[key])) return false;
  return true;
}

json to_json(const Example& row) {
  auto object = json::object();
  for (const auto& [name, value] : row) object[name] = sources::json_from_value(value);
  return object;
}

struct Case {
  std::string name;
  std::vector<std::string> files;
  LoadOptions options;
  json rows;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto document = read_json(kFolder / "expected.json");
  for (const auto& entry : document["cases"]) {
    Case one{.name = entry["name"], .files = {}, .options = {}, .rows = entry["rows"]};
    for (const auto& file : entry["files"])
      one.files.push_back((kFolder / file.get<std::string>()).string());
    const auto& given = entry["options"];
    auto& options = one.options;
    options.threads = 2;
    options.columns = given.value("columns", std::vector<std::string>());
    options.split = given.value("split", "");
    options.block_size = given.value("block_size", 1024);
    options.keep_linebreaks = given.value("keep_linebreaks", false);
    if (given.contains("field")) options.field = given["field"].get<std::string>();
    if (given.contains("text_unit"))
      options.text_unit = given["text_unit"] == "line"        ? TextUnit::line
                          : given["text_unit"] == "paragraph" ? TextUnit::paragraph
                                                              : TextUnit::document;
    if (!arrow_available() && one.files.front().ends_with("arrow")) continue;
    all.push_back(std::move(one));
  }
  return all;
}

TEST(SourceParity, RowsInAnyOrder) {
  const auto all = cases();
  ASSERT_GT(all.size(), 25u);
  for (const auto& one : all) {
    SCOPED_TRACE(one.name);
    const auto dataset = load_dataset(one.files, one.options);
    ASSERT_EQ(size_t(dataset->size()), one.rows.size());
    for (auto i = int64_t(one.rows.size()) - 1; i >= 0; --i) {
      const auto row = dataset->get(i);
      EXPECT_EQ(row.names(), dataset->column_names());
      EXPECT_TRUE(same(to_json(row), one.rows[size_t(i)]))
          << "row " << i << "\n  ours  " << dump_json(to_json(row)) << "\n  peer  "
          << dump_json(one.rows[size_t(i)]);
    }
  }
}

TEST(SourceParity, RowsFromFrontToBackAndAgain) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one.name);
    const auto stream = stream_dataset(one.files, one.options);
    for (int pass = 0; pass < 2; ++pass) {
      stream->reset(pass);
      size_t count = 0;
      while (const auto row = stream->next()) {
        ASSERT_LT(count, one.rows.size());
        EXPECT_TRUE(same(to_json(*row), one.rows[count]))
            << "row " << count << "\n  ours  " << dump_json(to_json(*row)) << "\n  peer  "
            << dump_json(one.rows[count]);
        ++count;
      }
      EXPECT_EQ(count, one.rows.size());
      EXPECT_FALSE(stream->next().has_value());
    }
  }
}

TEST(SourceParity, StreamsGoOnWhereTheyWereSaved) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one.name);
    for (size_t stop = 0; stop <= one.rows.size(); ++stop) {
      const auto first = stream_dataset(one.files, one.options);
      for (size_t i = 0; i < stop; ++i) ASSERT_TRUE(first->next().has_value());
      const auto state = parse_json(dump_json(first->save_state()));
      const auto second = stream_dataset(one.files, one.options);
      if (stop % 2 == 1) second->next();  // it need not be fresh
      second->load_state(state);
      for (size_t i = stop; i < one.rows.size(); ++i) {
        const auto row = second->next();
        ASSERT_TRUE(row.has_value()) << "row " << i << " after a stop at " << stop;
        EXPECT_TRUE(same(to_json(*row), one.rows[i])) << "row " << i << " after a stop at " << stop;
      }
      EXPECT_FALSE(second->next().has_value());
    }
  }
}

TEST(SourceParity, ClassNamesStandBesideAFileThatHasNone) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const auto folder = std::filesystem::path(testing::TempDir()) / "gradus_class_names";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(kFolder / "rows_stream.arrow", folder / "rows.arrow");
  const auto names_of_id = [&](const std::string& info) {
    std::ofstream(folder / "dataset_info.json") << info;
    const auto rows = load_dataset((folder / "rows.arrow").string());
    for (const auto& column : rows->columns())
      if (column.name == "id") return column.class_names;
    return std::vector<std::string>{"there is no id"};
  };
  EXPECT_EQ(names_of_id(R"({"features": {"id": {"_type": "ClassLabel", "names": ["a", "b"]}}})"),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(names_of_id(R"({"features": {"id": {"_type": "Value"}}})").empty());
  EXPECT_TRUE(names_of_id("not JSON").empty());
}

TEST(SourceParity, ClassNamesAndKinds) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const auto saved = load_dataset((kFolder / "saved").string());
  EXPECT_EQ(saved->columns()[1].name, "label");
  EXPECT_EQ(saved->columns()[1].class_names, (std::vector<std::string>{"bad", "good"}));
  const auto rows = load_dataset((kFolder / "rows.jsonl").string());
  std::map<std::string, ColumnKind> kinds;
  for (const auto& column : rows->columns()) kinds[column.name] = column.kind;
  EXPECT_EQ(kinds["id"], ColumnKind::integer);
  EXPECT_EQ(kinds["score"], ColumnKind::number);
  EXPECT_EQ(kinds["tags"], ColumnKind::texts);
  EXPECT_EQ(kinds["floats"], ColumnKind::numbers);
  EXPECT_EQ(kinds["none"], ColumnKind::null);
}

TEST(SourceParity, LargeParquetIsMappedFromATemporaryFile) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const auto file = (kFolder / "rows.parquet").string();
  const auto in_memory = load_dataset(file);
  const auto mapped = load_dataset(file, {.in_memory_limit = 0});
  ASSERT_EQ(mapped->size(), in_memory->size());
  for (int64_t i = 0; i < mapped->size(); ++i)
    EXPECT_TRUE(same(to_json(mapped->get(i)), to_json(in_memory->get(i))));
}

TEST(SourceParity, CompressedTextAboveTheLimitIsUnpackedToDisk) {
  const auto file = (kFolder / "rows.jsonl.gz").string();
  const auto in_memory = load_dataset(file);
  const auto unpacked = load_dataset(file, {.in_memory_limit = 10});
  ASSERT_EQ(unpacked->size(), in_memory->size());
  for (int64_t i = 0; i < unpacked->size(); ++i)
    EXPECT_TRUE(same(to_json(unpacked->get(i)), to_json(in_memory->get(i))));
}

}  // namespace
}  // namespace gradus
