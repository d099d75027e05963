// CSV files read in blocks so small that they fall apart everywhere.
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/sources.h>
#include <gtest/gtest.h>

#include "data/sources/column_kind.h"
#include "data/sources/csv_source.h"
#include "temporary_folder.h"

namespace gradus {
namespace {

constexpr size_t kWhole = size_t{1} << 20;

sources::SourceFile csv_file(const std::string& path) {
  return {.path = path, .format = sources::Format::csv};
}

std::string row_text(const Example& row) {
  auto cells = nlohmann::json::array();
  for (const auto& [name, value] : row)
    cells.emplace_back(nlohmann::json(sources::json_from_value(value)));
  return dump_json(cells);
}

// The rows of a file, or the error.
std::vector<std::string> loaded_rows(const std::string& path, size_t block_size,
                                     const LoadOptions& options = {}) try {
  const auto rows = sources::load_csv({csv_file(path)}, options, block_size);
  std::vector<std::string> texts;
  for (int64_t i = 0; i < rows->size(); ++i) texts.push_back(row_text(rows->get(i)));
  return texts;
} catch (const Error& error) {
  return {error.what()};
}

struct Silence : LogSink {
  void message(LogLevel, std::string_view) override {}
  void print(std::string_view) override {}
};

class CsvTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  }
  TemporaryFolder folder_;
};

using CsvBlockBorders = CsvTest;

TEST_F(CsvBlockBorders, TypesThatLaterBlocksChange) {
  std::string text = "int,float,word,bool,late,hex,day\n";
  for (int i = 0; i < 20; ++i)
    text += fmt::format("{},{},{},{},{},{},2024-01-{:02}\n", i, i < 10 ? "7" : "0.5",
                        i < 8    ? "007"
                        : i < 15 ? "1.5"
                                 : "x",
                        i < 4 ? "" : "True", i < 12 ? "NA" : "3", i < 10 ? "0x1F" : "2.5", i + 1);
  const auto file = folder_.write("a.csv", text);
  const auto whole = loaded_rows(file, kWhole);
  ASSERT_EQ(whole.size(), 20u);
  EXPECT_EQ(whole[0], R"([0, 7.0, "007", null, null, "0x1F", "2024-01-01"])");
  EXPECT_EQ(whole[19], R"([19, 0.5, "x", true, 3.0, "2.5", "2024-01-20"])");
  for (const size_t size : {16, 30, 64, 200, 500})
    EXPECT_EQ(loaded_rows(file, size), whole) << size;
}

// The same blocks must come again on the second reading, also after a header and rows that are
// longer than a block.
TEST_F(CsvBlockBorders, TypesThatChangeAmongLongRows) {
  const auto file = folder_.write("a.csv", "a," + std::string(100, 'b') + "\n,1\nTrue,2\n3," +
                                               std::string(150, '4') + "\n5,6\n7,8\n");
  const auto whole = loaded_rows(file, kWhole);
  ASSERT_EQ(whole.size(), 5u);
  EXPECT_EQ(whole[1], R"(["True", 2.0])");
  for (size_t size = 16; size < 400; size += 3) ASSERT_EQ(loaded_rows(file, size), whole) << size;
}

TEST_F(CsvBlockBorders, QuotedLineBreaksMarksAndEveryLineEnd) {
  const std::string text =
      "name,text,n\n\"a\",\"two\nlines, \"\"quoted\"\"\",1\n5\" "
      "disk,\"\n\n\",2\n\nshort\n\"crlf\r\nin it\",ä€,3\nlast,\"closed end\"";
  std::string crlf, returns;
  for (const char c : text)
    crlf += c == '\n' ? std::string("\r\n") : std::string(1, c), returns += c == '\n' ? '\r' : c;
  for (const auto& [name, content] : {std::pair{"lf.csv", text},
                                      {"crlf.csv", crlf},
                                      {"cr.csv", returns},
                                      {"mark.csv", "\xef\xbb\xbf" + text}}) {
    SCOPED_TRACE(name);
    const auto file = folder_.write(name, content);
    const auto whole = loaded_rows(file, kWhole);
    ASSERT_EQ(whole.size(), 5u) << whole.front();
    EXPECT_EQ(whole[2], R"(["short", null, null])");
    for (size_t size = 16; size < content.size() + 2; ++size)
      ASSERT_EQ(loaded_rows(file, size), whole) << size;
  }
  EXPECT_EQ(loaded_rows(folder_ / "lf.csv", 16)[0], R"(["a", "two\nlines, \"quoted\"", 1.0])");
}

TEST_F(CsvBlockBorders, BadRowsHaveTheirLineInTheFile) {
  const auto before = set_log_sink(std::make_shared<Silence>());
  const auto file = folder_.write("a.csv", "a,b\n1,\"x\ny\"\n\n2,3,4\n5,6\n7,8,9,10\n");
  for (const size_t size : {size_t{16}, size_t{25}, kWhole}) {
    EXPECT_NE(loaded_rows(file, size)[0].find(
                  "line 5: expected 2 fields, found 3; found \"2,3,4\" [G-SRC-4]"),
              std::string::npos)
        << loaded_rows(file, size)[0];
    const auto second = loaded_rows(file, size, {.skip_bad_rows = 1})[0];
    EXPECT_NE(second.find("line 7: expected 2 fields, found 4"), std::string::npos) << second;
    EXPECT_EQ(loaded_rows(file, size, {.skip_bad_rows = 2}),
              (std::vector<std::string>{R"([1, "x\ny"])", R"([5, "6"])"}))
        << size;
  }
  set_log_sink(before);
}

TEST_F(CsvBlockBorders, TextThatIsNotUtf8) {
  const auto file = folder_.write("a.csv", "a,b\n1,one\n2,two\n3,\xff\n4,four\n");
  for (const size_t size : {size_t{16}, kWhole})
    EXPECT_NE(loaded_rows(file, size)[0].find("column \"b\" is not UTF-8 [G-SRC-8]"),
              std::string::npos)
        << loaded_rows(file, size)[0];
}

TEST_F(CsvBlockBorders, QuotationMarkThatIsNeverClosed) {
  const auto file = folder_.write("a.csv", "a,b\n1,2\n3,\"4\n");
  std::filesystem::resize_file(file, 70 << 20);  // zeros, which take no room
  const auto error = loaded_rows(file, kWhole, {.max_row_bytes = 64 << 20})[0];
  EXPECT_NE(error.find("the row that begins on line 3 has more than 67,108,864 bytes [G-SRC-19]"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("never closed"), std::string::npos) << error;
  for (const size_t size : {size_t{16}, kWhole}) {  // also where the file ends before that
    const auto ended = loaded_rows(folder_.write("b.csv", "a,b\n1,2\n\n3,\"4\n5,6\n"), size)[0];
    EXPECT_NE(
        ended.find("the row that begins on line 4 has not ended when the file does [G-SRC-8]"),
        std::string::npos)
        << ended;
  }
}

TEST_F(CsvTest, ColumnsAreNamedAsPandasDoes) {
  const auto names = [&](const std::string& header) {
    return load_dataset(folder_.write("a.csv", header + "\n1,2,3\n"))->column_names();
  };
  EXPECT_EQ(names(",a,"), (std::vector<std::string>{"Unnamed: 0", "a", "Unnamed: 2"}));
  EXPECT_EQ(names("a,a,a"), (std::vector<std::string>{"a", "a.1", "a.2"}));
  EXPECT_EQ(names("a,a,a.1"), (std::vector<std::string>{"a", "a.2", "a.1"}));
}

TEST_F(CsvTest, Utf16IsNamed) {
  const auto file = folder_.write("a.csv", std::string("\xff\xfe"
                                                       "a\0,\0b\0\n\0",
                                                       10));
  EXPECT_NE(loaded_rows(file, kWhole)[0].find("it is UTF-16, expected UTF-8 [G-SRC-8]"),
            std::string::npos);
}

// Wherever a stream is stopped, it goes on with the next row, also at the place that another cut of
// the file into blocks gave.
TEST_F(CsvBlockBorders, StreamsGoOnAtAnyRow) {
  std::string text = "a,b\n";
  for (int i = 0; i < 40; ++i)
    text += fmt::format("{},\"row {}{}\"\n", i, std::string(size_t(i % 7) * 5, '.'),
                        i % 3 == 0 ? "\n" : "");
  const auto file = csv_file(folder_.write("a.csv", text));
  const auto whole = loaded_rows(file.path.string(), kWhole);
  const auto open = [&](size_t size) {
    return sources::open_csv_rows(file, {}, std::make_shared<sources::BadRows>(), size);
  };
  for (const size_t size : {16, 100, 333}) {
    const auto rows = open(size);
    for (size_t i = 0; i <= whole.size(); ++i) {
      for (const size_t other : {size, size_t{16}, size_t{90}}) {
        const auto again = open(other);
        again->seek(rows->position());
        const auto row = again->next();
        ASSERT_EQ(row ? row_text(*row) : "end", i < whole.size() ? whole[i] : "end")
            << i << " " << size << " " << other;
      }
      rows->next();
    }
  }
}

// Files of several blocks of the real size.
TEST_F(CsvTest, LargeFile) {
  std::string text = "n,text\n";
  while (text.size() < size_t{5} << 20)
    text += fmt::format("{},\"{}\n{}\"\n", text.size(), text.size(),
                        std::string(text.size() % 500, 'x'));
  const auto file = folder_.write("a.csv", text + "0.5,end\n");
  const auto dataset = load_dataset(file);
  const auto stream = stream_dataset(folder_.write("b.csv", text));
  int64_t count = 0;
  for (; const auto row = stream->next(); ++count)
    ASSERT_EQ((*row)["text"].str(), dataset->get(count)["text"].str()) << count;
  EXPECT_EQ(dataset->size(), count + 1);
  EXPECT_EQ(dataset->get(0)["n"].number(), 7.0);
  EXPECT_EQ(dataset->get(count)["n"].number(), 0.5);
}

}  // namespace
}  // namespace gradus
