#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/sources.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "temporary_folder.h"

namespace gradus {
namespace {

const std::filesystem::path kBadFiles =
    std::filesystem::path(GRADUS_SOURCE_DIR) / "tests/parity/data/sources";

// The error of `work`, or a failure.
template <class Work>
Error error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {"", ErrorKind::internal, ""};
}

int64_t drain(IterableDataset& stream) {
  int64_t rows = 0;
  while (stream.next()) ++rows;
  return rows;
}

struct Quiet : LogSink {
  std::vector<std::string> lines;
  void message(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  void print(std::string_view) override {}
};

TEST(BadInput, LineThatIsNotJson) {
  const TemporaryFolder folder;
  const auto file = folder.write("a.jsonl", "{\"a\": 1}\n\n{\"a\": 2\n{\"a\": 3}\n");
  const auto error = error_of([&] { load_dataset(file); });
  EXPECT_EQ(error.id(), "G-SRC-4");
  EXPECT_NE(error.message().find(file + ", line 3: not a JSON object"), std::string::npos)
      << error.message();
  EXPECT_NE(error.message().find("found \"{\"a\": 2\""), std::string::npos) << error.message();
  EXPECT_NE(error.advice().find("--skip_bad_rows"), std::string::npos);
  EXPECT_EQ(error_of([&] { drain(*stream_dataset(file)); }).message(), error.message());
}

TEST(BadInput, SkipBadRowsToleratesAsManyAndReportsThem) {
  const TemporaryFolder folder;
  const auto file = folder.write("a.jsonl", "{\"a\": 1}\nnope\n{\"a\": 2}\n[1]\n{\"a\": 3}\n7\n");
  const auto sink = std::make_shared<Quiet>();
  const auto before = set_log_sink(sink);
  const auto dataset = load_dataset(file, {.skip_bad_rows = 3});
  EXPECT_EQ(drain(*stream_dataset(file, {.skip_bad_rows = 3})), 3);
  const auto error = error_of([&] { load_dataset(file, {.skip_bad_rows = 2}); });
  const auto streamed = error_of([&] { drain(*stream_dataset(file, {.skip_bad_rows = 2})); });
  set_log_sink(before);
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->skipped_rows(), 3);
  EXPECT_EQ(dataset->get(2).at("a").integer(), 3);
  ASSERT_GE(sink->lines.size(), 3u);
  EXPECT_NE(sink->lines[0].find("line 2"), std::string::npos);
  EXPECT_NE(sink->lines[2].find("line 6"), std::string::npos);
  EXPECT_NE(error.message().find("line 6"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("after 2 that skip_bad_rows allowed"), std::string::npos)
      << error.message();
  EXPECT_EQ(streamed.message(), error.message());
}

TEST(BadInput, ParquetCutShortOrOfNothing) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  const auto whole = content_of(kBadFiles / "rows.parquet");
  for (const size_t length : {size_t{1}, size_t{8}, whole.size() / 2, whole.size() - 1}) {
    const auto file = folder.write("cut.parquet", whole.substr(0, length));
    const auto error = error_of([&] { load_dataset(file); });
    EXPECT_EQ(error.id(), "G-SRC-8") << length;
    EXPECT_NE(error.message().find(file), std::string::npos);
    EXPECT_EQ(error_of([&] { drain(*stream_dataset(file)); }).id(), "G-SRC-8");
  }
  EXPECT_NE(error_of([&] { load_dataset(folder.write("empty.parquet", "")); })
                .message()
                .find("the file is empty (0 bytes)"),
            std::string::npos);
}

TEST(BadInput, ParquetDamagedInTheMiddle) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  const auto whole = content_of(kBadFiles / "rows.parquet");
  for (size_t at = 4; at + 64 < whole.size(); at += 97) {
    auto bytes = whole;
    for (size_t i = 0; i < 24; ++i) bytes[at + i] = char(0xa5 ^ i);
    const auto file = folder.write("damaged.parquet", bytes);
    try {  // some bytes are only values
      const auto dataset = load_dataset(file, {.allow_empty = true});
      for (int64_t i = 0; i < dataset->size(); ++i) dataset->get(i);
    } catch (const Error& error) {
      EXPECT_TRUE(error.id() == "G-SRC-8" || error.id() == "G-SRC-6" || error.id() == "G-SRC-7")
          << error.what();
    }
  }
}

TEST(BadInput, ArrowCutShort) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  for (const auto* name : {"rows_file.arrow", "rows_stream.arrow"}) {
    const auto whole = content_of(kBadFiles / name);
    for (size_t length = 1; length < whole.size(); length += 501) {
      const auto file = folder.write("cut.arrow", whole.substr(0, length));
      try {  // a stream that ends between two batches is whole
        const auto dataset = load_dataset(file);
        for (int64_t i = 0; i < dataset->size(); ++i) dataset->get(i);
      } catch (const Error& error) {
        EXPECT_TRUE(error.id() == "G-SRC-8" || error.id() == "G-SRC-3") << error.what();
      }
    }
  }
  EXPECT_EQ(
      error_of([&] { load_dataset(folder.write("not.arrow", "plain text, not Arrow")); }).id(),
      "G-SRC-8");
}

TEST(BadInput, ColumnsMissingOrOfAnotherType) {
  const TemporaryFolder folder;
  const auto file = folder.write(
      "a.jsonl", "{\"text\": \"x\", \"label\": 1}\n{\"text\": \"y\", \"label\": \"two\"}\n");
  const auto missing = error_of([&] { load_dataset(file, {.columns = {"txet"}}); });
  EXPECT_EQ(missing.id(), "G-SRC-6");
  EXPECT_EQ(missing.message(), file + " has no column \"txet\"; its columns are text, label");
  EXPECT_EQ(missing.advice(), "Did you mean text?");
  EXPECT_EQ(error_of([&] { drain(*stream_dataset(file, {.columns = {"txet"}})); }).id(), "G-SRC-6");
  const auto dataset = load_dataset(file);
  EXPECT_NO_THROW(require_columns(
      *dataset, std::vector<ColumnNeed>{{.name = "text", .kinds = {ColumnKind::text}}}, file));
  const auto other = error_of([&] {
    require_columns(*dataset,
                    std::vector<ColumnNeed>{
                        {.name = "label", .kinds = {ColumnKind::integer, ColumnKind::number}}},
                    file);
  });
  EXPECT_EQ(other.id(), "G-SRC-7");
  EXPECT_EQ(other.message(),
            "column \"label\" of " + file + " is of several types; expected int or float");
  if (!arrow_available()) return;
  EXPECT_EQ(error_of([&] {
              load_dataset((kBadFiles / "rows.parquet").string(), {.columns = {"nope"}});
            }).id(),
            "G-SRC-6");
  EXPECT_EQ(error_of([&] {
              load_dataset((kBadFiles / "rows_stream.arrow").string(), {.columns = {"nope"}});
            }).id(),
            "G-SRC-6");
}

TEST(BadInput, EmptyFilesAndFilesThatAreNotThere) {
  const TemporaryFolder folder;
  for (const auto* name : {"a.jsonl", "a.json", "a.txt", "a.csv"}) {
    if (std::string(name) == "a.csv" && !arrow_available()) continue;
    const auto file = folder.write(name, "");
    EXPECT_EQ(error_of([&] { load_dataset(file); }).id(), "G-SRC-3") << name;
    EXPECT_EQ(error_of([&] { drain(*stream_dataset(file)); }).id(), "G-SRC-3") << name;
    EXPECT_EQ(load_dataset(file, {.allow_empty = true})->size(), 0) << name;
  }
  const auto absent = error_of([&] { load_dataset(folder / "b.jsonl"); });
  EXPECT_EQ(absent.id(), "G-SRC-1");
  EXPECT_EQ(absent.message(), "no data file " + (folder / "b.jsonl"));
  EXPECT_EQ(absent.advice().substr(0, 12), "Did you mean");
  EXPECT_EQ(error_of([&] { load_dataset(folder / "*.parquet"); }).id(), "G-SRC-1");
  EXPECT_EQ(error_of([&] { load_dataset(folder.write("x.docx", "?")); }).id(), "G-SRC-2");
  EXPECT_EQ(error_of([&] { load_dataset(folder / "a.txt", {.format = "jsonlines"}); }).id(),
            "G-SRC-2");
  EXPECT_EQ(error_of([&] { load_dataset({folder / "a.txt", folder / "a.jsonl"}); }).id(),
            "G-SRC-2");
}

TEST(BadInput, UnreadableFileInTheMiddle) {
  const TemporaryFolder folder;
  const auto first = folder.write("1.jsonl", "{\"a\": 1}\n");
  const auto second = folder.write("2.jsonl", "{\"a\": 2}\n");
  const auto stream = stream_dataset({first, second});
  EXPECT_TRUE(stream->next().has_value());
  std::filesystem::remove(second);
  EXPECT_EQ(error_of([&] { stream->next(); }).id(), "G-IO-1");
  EXPECT_EQ(error_of([&] { stream->next(); }).id(),
            "G-IO-1");  // and again: no hang, no end of data
}

TEST(BadInput, FileCutShortWhileItIsRead) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "{\"a\": " + std::to_string(i) + "}\n";
  const auto file = folder.write("a.jsonl", lines);
  const auto dataset = load_dataset(file);
  std::filesystem::resize_file(file, 20);
  EXPECT_EQ(dataset->get(0).at("a").integer(), 0);
  EXPECT_EQ(error_of([&] { dataset->get(999); }).id(), "G-SRC-11");

  const auto tokens = folder.write("t.bin", std::string(20000, 'x'));
  const auto windows = token_windows(tokens, {.block_size = 10});
  std::filesystem::resize_file(tokens, 2);
  EXPECT_EQ(error_of([&] { windows->get(900); }).id(), "G-SRC-11");

  if (!arrow_available()) return;
  std::filesystem::copy_file(kBadFiles / "rows_stream.arrow", folder / "a.arrow");
  const auto mapped = load_dataset(folder / "a.arrow");
  std::filesystem::resize_file(folder / "a.arrow", 100);
  EXPECT_EQ(error_of([&] { mapped->get(11); }).id(), "G-SRC-11");
}

TEST(BadInput, NotUtf8) {
  const TemporaryFolder folder;
  const auto file = folder.write("a.txt", "fine\n\xc3\xa4\nbroken \xff here\n");
  const auto error = error_of([&] { load_dataset(file); });
  EXPECT_EQ(error.id(), "G-SRC-4");
  EXPECT_NE(error.message().find("line 3: byte 7 of the row is not UTF-8"), std::string::npos)
      << error.message();
  EXPECT_EQ(error_of([&] { drain(*stream_dataset(file)); }).message(), error.message());
  EXPECT_EQ(error_of([&] { load_dataset(folder.write("a.jsonl", "{\"a\": \"\xff\"}\n")); }).id(),
            "G-SRC-4");
}

TEST(BadInput, CsvRowsWithTooManyFields) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  const auto file = folder.write("a.csv", "a,b\n1,2\n3,4,5\n6,7\n");
  const auto error = error_of([&] { load_dataset(file); });
  EXPECT_EQ(error.id(), "G-SRC-4");
  EXPECT_NE(error.message().find("line 3: expected 2 fields, found 3"), std::string::npos)
      << error.message();
  EXPECT_EQ(error_of([&] { drain(*stream_dataset(file)); }).id(), "G-SRC-4");
  const auto before = set_log_sink(std::make_shared<Quiet>());
  const auto dataset = load_dataset(file, {.skip_bad_rows = 1});
  EXPECT_EQ(drain(*stream_dataset(file, {.skip_bad_rows = 1})), 2);
  set_log_sink(before);
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->skipped_rows(), 1);
}

TEST(BadInput, JsonDocuments) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_of([&] { load_dataset(folder.write("a.json", "[{\"a\": 1}, {\"a\": ")); }).id(),
            "G-SRC-8");
  const auto inner =
      error_of([&] { load_dataset(folder.write("b.json", "[{\"a\": 1},\n {\"a\": oops}]")); });
  EXPECT_EQ(inner.id(), "G-SRC-4");
  EXPECT_NE(inner.message().find("line 2"), std::string::npos) << inner.message();
  const auto field = error_of(
      [&] { load_dataset(folder.write("c.json", "{\"data\": [{\"a\": 1}]}"), {.field = "rows"}); });
  EXPECT_NE(field.message().find("there is no key \"rows\""), std::string::npos) << field.message();
  const auto scalar = error_of([&] { load_dataset(folder / "c.json", {.field = "data\""}); });
  EXPECT_EQ(scalar.id(), "G-SRC-8");
  const auto list = error_of(
      [&] { load_dataset(folder.write("d.json", "{\"data\": {\"a\": 1}}"), {.field = "data"}); });
  EXPECT_NE(list.message().find("\"data\" is not a list"), std::string::npos) << list.message();
}

TEST(BadInput, DamagedCompression) {
  const TemporaryFolder folder;
  const auto whole = content_of(kBadFiles / "rows.jsonl.gz");
  const auto cut = folder.write("cut.jsonl.gz", whole.substr(0, whole.size() / 2));
  EXPECT_EQ(error_of([&] { load_dataset(cut); }).id(), "G-SRC-8");
  EXPECT_EQ(error_of([&] { drain(*stream_dataset(cut)); }).id(), "G-SRC-8");
  if (!arrow_available()) return;
  const auto zst = content_of(kBadFiles / "rows.jsonl.zst");
  EXPECT_EQ(error_of([&] {
              load_dataset(folder.write("cut.jsonl.zst", zst.substr(0, zst.size() / 2)));
            }).id(),
            "G-SRC-8");
}

TEST(BadInput, FoldersAndSplits) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  const auto several = error_of([&] { load_dataset((kBadFiles / "saved_dict").string()); });
  EXPECT_EQ(several.id(), "G-SRC-10");
  EXPECT_NE(several.message().find("holds several splits: train or test"), std::string::npos)
      << several.message();
  EXPECT_EQ(
      error_of([&] { load_dataset((kBadFiles / "saved_dict").string(), {.split = "valid"}); }).id(),
      "G-SRC-10");
  EXPECT_EQ(error_of([&] { load_dataset(folder.path()); }).id(), "G-SRC-10");
}

TEST(BadInput, StatesOfOtherFiles) {
  const TemporaryFolder folder;
  const auto a = folder.write("a.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
  const auto b = folder.write("b.jsonl", "{\"a\": 1}\n");
  const auto stream = stream_dataset({a, b});
  stream->next();
  const auto state = stream->save_state();
  EXPECT_EQ(error_of([&] { stream_dataset(a)->load_state(state); }).id(), "G-SRC-15");
  EXPECT_EQ(error_of([&] { stream_dataset({b, a})->load_state(state); }).id(), "G-SRC-15");
  EXPECT_EQ(error_of([&] { stream->load_state({{"nonsense", 1}}); }).id(), "G-SRC-15");
}

TEST(BadInput, RowsOutOfRange) {
  const TemporaryFolder folder;
  const auto dataset = load_dataset(folder.write("a.txt", "one\n"));
  EXPECT_EQ(error_of([&] { dataset->get(1); }).id(), "G-SRC-17");
  EXPECT_EQ(error_of([&] { dataset->get(-1); }).id(), "G-SRC-17");
}

}  // namespace
}  // namespace gradus
