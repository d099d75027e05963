#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/data/sources.h>
#include <gtest/gtest.h>

#include <atomic>

#include "temporary_folder.h"

namespace gradus {
namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class Work>
std::string id_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.id();
  }
  return "nothing was thrown";
}

std::vector<uint16_t> ramp(int count) {
  std::vector<uint16_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(uint16_t(i * 37 % 50257));
  return ids;
}

TEST(TokenFile, GuessesTheWidthOfRawFiles) {
  const TemporaryFolder folder;
  const auto narrow = ramp(1000);
  EXPECT_EQ(TokenFile(folder.write("a.bin", bytes_of(narrow))).type(), TokenType::uint16);
  const std::vector<uint32_t> wide(narrow.begin(), narrow.end());
  EXPECT_EQ(TokenFile(folder.write("b.bin", bytes_of(wide))).type(), TokenType::uint32);
  EXPECT_EQ(TokenFile(folder / "b.bin")[5], wide[5]);
  std::vector<uint16_t> digits;  // tiny ids in both halves
  for (int i = 0; i < 1000; ++i) digits.push_back(uint16_t(i * i % 10));
  EXPECT_EQ(TokenFile(folder.write("c.bin", bytes_of(digits))).type(), TokenType::uint16);
  EXPECT_EQ(TokenFile(folder / "b.bin", TokenType::uint16).size(), 2000);
}

TEST(TokenFile, RefusesHeadersAndLengthsThatDoNotFit) {
  const TemporaryFolder folder;
  EXPECT_EQ(id_of([&] { TokenFile(folder.write("odd.bin", "abc")); }), "G-SRC-12");
  std::vector<int32_t> header(256);
  header[0] = 20240520;
  header[1] = 2;
  EXPECT_EQ(id_of([&] { TokenFile(folder.write("version.bin", bytes_of(header))); }), "G-SRC-12");
  header[1] = 1;
  header[2] = 10;
  auto short_by_nine = bytes_of(header);
  short_by_nine.resize(short_by_nine.size() + 2);
  EXPECT_EQ(id_of([&] { TokenFile(folder.write("count.bin", short_by_nine)); }), "G-SRC-12");
  EXPECT_EQ(id_of([&] { TokenFile(folder.write("head.bin", bytes_of(header).substr(0, 100))); }),
            "G-SRC-12");
  EXPECT_EQ(id_of([&] { TokenFile(folder / "absent.bin"); }), "G-IO-1");
  folder.write("index.bin", "1234");
  folder.write("index.idx", "GRADIDX1 but cut short");
  EXPECT_EQ(id_of([&] { TokenFile(folder / "index.bin"); }), "G-SRC-12");
}

TEST(TokenWindows, StridesShiftsAndLeavesOutTheRest) {
  const TemporaryFolder folder;
  const auto ids = ramp(25);
  const auto file = folder.write("a.bin", bytes_of(ids));
  const auto plain = token_windows(file, {.block_size = 10});
  ASSERT_EQ(plain->size(), 2);
  EXPECT_EQ(plain->get(1).at("input_ids").ints().front(), ids[10]);
  EXPECT_EQ(plain->get(1).at("input_ids").ints(), plain->get(1).at("labels").ints());
  const auto shifted = token_windows(file, {.block_size = 5, .shifted_labels = true});
  ASSERT_EQ(shifted->size(), 4);  // the fifth would need an id more
  EXPECT_EQ(shifted->get(3).at("labels").ints().back(), ids[20]);
  EXPECT_EQ(shifted->get(3).at("input_ids").ints().size(), 5u);
  EXPECT_EQ(token_windows(file, {.block_size = 10, .stride = 5})->size(), 4);
  EXPECT_EQ(
      token_windows(std::vector<std::filesystem::path>{file, file}, {.block_size = 10})->size(), 4);
  EXPECT_EQ(id_of([&] { token_windows(file, {.block_size = 26}); }), "G-SRC-3");
  EXPECT_EQ(id_of([&] { token_windows(file, {.block_size = 0}); }), "G-SRC-12");
}

TEST(TokenWindows, NamesThePlaceOfAnIdOutsideTheVocabulary) {
  const TemporaryFolder folder;
  auto ids = ramp(40);
  ids[33] = 60000;
  const auto windows =
      token_windows(folder.write("a.bin", bytes_of(ids)), {.block_size = 10, .vocab_size = 50257});
  EXPECT_NO_THROW(windows->get(2));
  try {
    windows->get(3);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-SRC-13");
    EXPECT_NE(error.message().find("id 60000 at position 33 is outside the vocabulary of 50,257"),
              std::string::npos)
        << error.message();
  }
}

// One id per character: enough to see order and borders.
std::vector<std::vector<uint32_t>> characters(std::span<const std::string> texts) {
  std::vector<std::vector<uint32_t>> ids;
  for (const auto& text : texts) ids.emplace_back(text.begin(), text.end());
  return ids;
}

std::string some_lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines +=
        "{\"text\": \"document " + std::to_string(i) + std::string(size_t(i % 7), '.') + "\"}\n";
  return lines;
}

TEST(TokenizeFiles, ADamagedNoteOfProgressIsNamed) {
  const TemporaryFolder folder;
  const auto input = folder.write("a.jsonl", some_lines(5));
  for (const char* text :
       {"[]", "{}", R"({"signature": {}, "source": null, "documents": -1, "tokens": 0})"}) {
    folder.write("tokens.progress.json", text);
    try {
      tokenize_files(input, folder / "tokens", characters, {.vocab_size = 128});
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "G-SRC-16") << text;
      EXPECT_NE(error.message().find("tokens.progress.json is damaged"), std::string::npos)
          << error.message();
    }
  }
}

TEST(TokenizeFiles, WritesDocumentsThatReadBack) {
  const TemporaryFolder folder;
  const auto input = folder.write("a.jsonl", some_lines(500));
  const auto result =
      tokenize_files(input, folder / "out/tokens", characters,
                     {.eos_token_id = 0, .vocab_size = 128, .batch_size = 7, .threads = 3});
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.documents, 500);
  const TokenFile tokens(result.tokens_file);
  EXPECT_EQ(tokens.layout(), TokenLayout::gradus);
  EXPECT_EQ(tokens.type(), TokenType::uint16);
  EXPECT_EQ(tokens.size(), result.tokens);
  const auto documents = token_documents(result.tokens_file);
  ASSERT_EQ(documents->size(), 500);
  const auto ids = documents->get(123).at("input_ids").ints();
  EXPECT_EQ(std::string(ids.begin(), ids.end()), "document 123...." + std::string(1, '\0'));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/tokens.progress.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/tokens.bin.part"));
  EXPECT_EQ(load_dataset(result.tokens_file, {.block_size = 100})->size(), result.tokens / 100);
}

TEST(TokenizeFiles, StoppedAnywhereGoesOnToTheSameBytes) {
  const TemporaryFolder folder;
  const auto input = folder.write("a.jsonl", some_lines(300));
  const TokenizeOptions options{.vocab_size = 100000, .batch_size = 8, .threads = 2};
  tokenize_files(input, folder / "whole", characters, options);
  auto part = options;
  int64_t asked = 0;
  part.stop = [&] { return ++asked % 5 == 0; };
  TokenizeResult result;
  int calls = 0;
  do {
    result = tokenize_files(input, folder / "part", characters, part);
    if (!result.finished && calls == 2) {  // bytes written after the last safe point are dropped
      std::ofstream(folder / "part.bin.part", std::ios::binary | std::ios::app) << "torn";
    }
    ++calls;
  } while (!result.finished && calls < 100);
  EXPECT_GT(calls, 3);
  EXPECT_GT(result.resumed_documents, 0);
  EXPECT_EQ(content_of(folder / "part.bin"), content_of(folder / "whole.bin"));
  EXPECT_EQ(content_of(folder / "part.idx"), content_of(folder / "whole.idx"));
}

TEST(TokenizeFiles, AnErrorKeepsWhatWasDone) {
  const TemporaryFolder folder;
  const auto input = folder.write("a.jsonl", some_lines(100));
  std::atomic<int> calls = 0;
  bool broken = true;
  const TokenizeFunction sometimes = [&](std::span<const std::string> texts) {
    if (broken && ++calls > 3) throw Error("G-TEST-1", ErrorKind::internal, "no more");
    return characters(texts);
  };
  const TokenizeOptions options{.batch_size = 10, .threads = 1};
  EXPECT_EQ(id_of([&] { tokenize_files(input, folder / "t", sometimes, options); }), "G-TEST-1");
  EXPECT_EQ(id_of([&] {
              tokenize_files(folder.write("b.jsonl", some_lines(2)), folder / "t", characters,
                             options);
            }),
            "G-SRC-16");
  broken = false;
  const auto result = tokenize_files(input, folder / "t", sometimes, options);
  EXPECT_EQ(result.resumed_documents, 30);
  EXPECT_EQ(result.documents, 100);
}

TEST(TokenizeFiles, RefusesWrongColumnsAndIds) {
  const TemporaryFolder folder;
  const auto input =
      folder.write("a.jsonl", "{\"text\": \"zz\", \"n\": 1}\n{\"text\": null, \"n\": 2}\n");
  EXPECT_EQ(id_of([&] { tokenize_files(input, folder / "a", characters, {.text_column = "txt"}); }),
            "G-SRC-6");
  EXPECT_EQ(id_of([&] { tokenize_files(input, folder / "b", characters, {.text_column = "n"}); }),
            "G-SRC-7");
  EXPECT_EQ(id_of([&] { tokenize_files(input, folder / "c", characters, {}); }), "G-SRC-7");
  EXPECT_EQ(id_of([&] {
              tokenize_files(folder.write("d.txt", "zz\n"), folder / "d", characters,
                             {.vocab_size = 100});
            }),
            "G-SRC-13");
}

}  // namespace
}  // namespace gradus
