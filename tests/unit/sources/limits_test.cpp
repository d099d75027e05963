// What a data file may take, and files of very many columns, keys and lines.
#include <gradus/core/error.h>
#include <gradus/data/sources.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "../error_of.h"
#include "data/sources/byte_stream.h"
#include "data/sources/json_row.h"
#include "data/sources/row_schema.h"
#include "temporary_folder.h"

namespace gradus {
namespace {

constexpr int64_t kLimit = 10'000;

std::string write_gz(const TemporaryFolder& folder, const std::string& name,
                     const std::string& text) {
  const auto path = folder / name;
  const auto file = gzopen(path.c_str(), "wb1");
  gzwrite(file, text.data(), unsigned(text.size()));
  gzclose(file);
  return path;
}

int64_t drain(IterableDataset& stream) {
  int64_t rows = 0;
  while (stream.next()) ++rows;
  return rows;
}

TEST(Limits, RowThatIsTooLong) {
  const TemporaryFolder folder;
  const std::string shorts(100, '\n'), longs(3 * kLimit, 'x');
  const auto text = shorts + longs;
  const auto json = "{\"a\": 1}\n{\"a\": \"" + longs + "\"}\n";
  const auto csv = "a,b\n1,2\n3,\"" + longs + "\"\n";
  const LoadOptions options{.max_row_bytes = kLimit};
  for (const auto& [file, where] : std::vector<std::pair<std::string, std::string>>{
           {folder.write("a.txt", text), ": line 101 "},
           {write_gz(folder, "b.txt.gz", text), ": line 101 "},
           {folder.write("c.jsonl", json), ": line 2 "},
           {write_gz(folder, "d.jsonl.gz", json), ": line 2 "},
           {folder.write("f.csv", csv), "begins on line 3 "}}) {
    if (file.ends_with(".csv") && !arrow_available()) continue;
    for (const bool stream : {false, true}) {
      const auto error = error_of([&] {
        if (stream)
          drain(*stream_dataset(file, options));
        else
          load_dataset(file, options);
      });
      for (const auto& part :
           {std::string("[G-SRC-19]"), std::string("more than 10,000 bytes"),
            std::string("--max_row_bytes"), file, stream || file.ends_with("csv") ? where : ""})
        EXPECT_NE(error.find(part), std::string::npos) << part << " is not in " << error;
    }
    EXPECT_GT(load_dataset(file)->size(), 0);
  }
  const auto document = folder.write("e.json", "[" + json.substr(9) + "]");
  expect_error([&] { load_dataset(document, options); }, "G-SRC-19", {"the row at byte 1 "});
}

TEST(Limits, RowOfExactlyTheLimit) {
  const TemporaryFolder folder;
  const std::string row(size_t(kLimit - 1), 'x');
  const LoadOptions options{.max_row_bytes = kLimit};
  EXPECT_EQ(load_dataset(folder.write("a.txt", row + "\n" + row + "\n"), options)->size(), 2);
  EXPECT_EQ(drain(*stream_dataset(folder / "a.txt", options)), 2);
  folder.write("b.txt", row + "x\nx\n");
  EXPECT_THROW(load_dataset(folder / "b.txt", options), Error);
  EXPECT_THROW(drain(*stream_dataset(folder / "b.txt", options)), Error);
}

TEST(Limits, DocumentOnOneLineIsNotOneRow) {
  const TemporaryFolder folder;
  std::string document = "[";
  for (int i = 0; i < 5000; ++i) document += "{\"a\": 1}, ";
  document += "{\"a\": 2}]";
  const LoadOptions options{.max_row_bytes = 100};
  EXPECT_EQ(load_dataset(folder.write("a.json", document), options)->size(), 5001);
  EXPECT_EQ(drain(*stream_dataset(folder / "a.json", options)), 5001);
  const auto field =
      folder.write("b.json", "{\"" + std::string(5000, 'k') + "\": 1, \"d\": " + document + "}");
  EXPECT_EQ(load_dataset(field, {.field = "d", .max_row_bytes = 100})->size(), 5001);
}

// The rows are the same wherever the pieces of a line end.
TEST(Limits, LinesThatSpanPieces) {
  const TemporaryFolder folder;
  const std::string text = "one\r\ntwo\rthree\n\r\n\nfour and more\r";
  const auto file = folder.write("a.txt", text);
  for (const size_t piece : {1, 2, 3, 5, 7, 1000}) {
    sources::BlockReader reader(sources::open_stream({.path = file}), piece, file, 1000);
    std::string all;
    while (const auto block = reader.next()) {
      EXPECT_EQ(block->offset, int64_t(all.size()));
      EXPECT_NE(block->bytes.front(), all.ends_with('\r') ? '\n' : '\0') << piece;
      all += block->bytes;
      EXPECT_TRUE(all.ends_with('\n') || all.ends_with('\r') || all.size() == text.size()) << all;
    }
    EXPECT_EQ(all, text) << piece;
  }
}

TEST(Limits, UnpackedPiecesAreReadAcrossTheirBorders) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += std::to_string(i) + "\n";  // more than one piece
  const sources::TextBytes bytes(
      {.path = write_gz(folder, "a.txt.gz", text), .compression = sources::Compression::gzip}, {});
  ASSERT_EQ(bytes.size(), int64_t(text.size()));
  constexpr int64_t kBorder = 4 << 20;
  for (const int64_t start : {int64_t{0}, kBorder - 3, kBorder - 1, kBorder, kBorder + 1})
    EXPECT_EQ(bytes.read(start, 10), text.substr(size_t(start), 10)) << start;
  EXPECT_EQ(bytes.read(0, bytes.size()), text);
}

TEST(Limits, ExpansionIsCountedFromTheFile) {
  using sources::expansion_limit;
  constexpr int64_t kAlways = int64_t{256} << 20;
  EXPECT_EQ(expansion_limit(10, {}), kAlways);
  EXPECT_EQ(expansion_limit(int64_t{1} << 30, {}), int64_t{100} << 30);
  EXPECT_EQ(expansion_limit(int64_t{1} << 30, {.max_expansion = 3}), int64_t{3} << 30);
  EXPECT_EQ(expansion_limit(INT64_MAX / 2, {}), INT64_MAX);
}

TEST(ManyColumns, OfARow) {
  constexpr int64_t kKeys = 100'000;
  std::string text = "{";
  for (int64_t i = 0; i < kKeys; ++i)
    text += "\"k" + std::to_string(i) + "\": " + std::to_string(i) + ", ";
  text += "\"k7\": -7}";  // once more: the last value counts
  const auto row = sources::parse_json_row(text, {});
  EXPECT_EQ(row.size(), size_t(kKeys));
  EXPECT_EQ(row.at("k99999").integer(), 99'999);
  EXPECT_EQ(row.at("k7").integer(), -7);
  sources::RowSchema schema;
  schema.add(row);
  schema.add(row);
  schema.choose({}, "here");
  EXPECT_EQ(schema.columns().size(), size_t(kKeys));
  EXPECT_EQ(schema.shape(row).at("k5").integer(), 5);
  schema.choose({"k3", "k1"}, "here");
  EXPECT_EQ(schema.shape(row).names(), (std::vector<std::string>{"k3", "k1"}));
}

TEST(ManyColumns, OfACsvFile) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  constexpr int kColumns = 100'000;
  std::string same, different, cells;
  for (int i = 0; i < kColumns; ++i) {
    same += i > 0 ? ",a" : "a";
    different += (i > 0 ? ",c" : "c") + std::to_string(i);
    cells += (i > 0 ? "," : "") + std::to_string(i);
  }
  for (const auto& header : {same, different}) {
    const auto file = folder.write("a.csv", header + "\n" + cells + "\n" + cells + "\n");
    const auto rows = load_dataset(file);
    ASSERT_EQ(rows->columns().size(), size_t(kColumns));
    EXPECT_EQ(rows->columns().back().name, header == same ? "a.99999" : "c99999");
    EXPECT_EQ(rows->get(1).at(rows->columns().back().name).integer(), kColumns - 1);
    const auto row = stream_dataset(file)->next();
    EXPECT_EQ(row->at(rows->columns().back().name).integer(), kColumns - 1);
  }
}

TEST(ManyLines, OfNothing) {
  const TemporaryFolder folder;
  const auto file = folder.write("a.txt", std::string(1'000'000, '\n'));
  EXPECT_EQ(load_dataset(file)->size(), 1'000'000);
  EXPECT_EQ(drain(*stream_dataset(file)), 1'000'000);
  for (const auto unit : {TextUnit::paragraph, TextUnit::document})
    EXPECT_LE(load_dataset(file, {.text_unit = unit, .allow_empty = true})->size(), 1);
}

}  // namespace
}  // namespace gradus
