#include <gradus/audio/ctc_tokenizer.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

namespace gradus {
namespace {

namespace fs = std::filesystem;
const fs::path kTexts = fs::path(GRADUS_SOURCE_DIR) / "tests/parity/audio/fixtures";

CTCTokens script_tokens() {
  CTCTokens tokens;
  tokens.unk_token = "[UNK]";
  tokens.pad_token = "[PAD]";
  return tokens;
}

TEST(CTCTokenizer, EqualsTransformers) {
  const auto expected = read_json(kTexts / "texts.json");
  const auto tokenizer = CTCTokenizer::from_vocabulary(kTexts / "vocab.json", script_tokens());
  EXPECT_EQ(tokenizer.full_vocab_size(), expected.at("length").get<int64_t>());
  EXPECT_EQ(tokenizer.all_special_ids(), expected.at("special").get<std::vector<int64_t>>());
  for (const auto& pair : expected.at("encoded"))
    EXPECT_EQ(tokenizer.encode(pair[0].get<std::string>()), pair[1].get<std::vector<int64_t>>())
        << pair[0];
  for (const auto& row : expected.at("decoded")) {
    const auto ids = row[0].get<std::vector<int64_t>>();
    EXPECT_EQ(tokenizer.decode(ids), row[1].get<std::string>());
    EXPECT_EQ(tokenizer.decode(ids, /*group_tokens=*/false), row[2].get<std::string>());
  }
}

TEST(CTCTokenizer, FilesGoBothWays) {
  char name[] = "/tmp/gradus-ctc-XXXXXX";
  const fs::path folder = mkdtemp(name);
  const auto tokenizer = CTCTokenizer::from_vocabulary(kTexts / "vocab.json", script_tokens());
  tokenizer.save_pretrained(folder);
  const auto loaded = CTCTokenizer::from_pretrained(folder);
  EXPECT_EQ(loaded.encode("ab ü x"), tokenizer.encode("ab ü x"));
  EXPECT_EQ(loaded.full_vocab_size(), tokenizer.full_vocab_size());
  EXPECT_EQ(loaded.pad_token_id(), tokenizer.pad_token_id());
  write_file_atomically(folder / "vocab.json", "{\"a\": \"b\"}");
  EXPECT_THROW(CTCTokenizer::from_pretrained(folder), Error);
  fs::remove_all(folder);
  EXPECT_THROW(CTCTokenizer::from_pretrained(folder), Error);
}

TEST(CTCTokenizer, FoldersWithRareSettingsEqualTransformers) {
  const auto expected = read_json(kTexts / "texts.json");
  for (const auto& one : expected.at("folders")) {
    const auto name = one.at("name").get<std::string>();
    char place[] = "/tmp/gradus-ctc-XXXXXX";
    const fs::path folder = mkdtemp(place);
    for (const auto& [file, content] : one.at("files").items())
      write_file_atomically(folder / file, content.get<std::string>());
    const auto loaded = CTCTokenizer::from_pretrained(folder);
    loaded.save_pretrained(folder / "again");
    for (const auto& tokenizer : {loaded, CTCTokenizer::from_pretrained(folder / "again")}) {
      EXPECT_EQ(tokenizer.full_vocab_size(), one.at("room").get<int64_t>()) << name;
      auto special = tokenizer.all_special_ids();
      std::sort(special.begin(), special.end());
      EXPECT_EQ(special, one.at("special").get<std::vector<int64_t>>()) << name;
      for (const auto& pair : one.at("encoded"))
        EXPECT_EQ(tokenizer.encode(pair[0].get<std::string>()), pair[1].get<std::vector<int64_t>>())
            << name << ": " << pair[0];
      for (const auto& pair : one.at("decoded"))
        EXPECT_EQ(tokenizer.decode(pair[0].get<std::vector<int64_t>>()), pair[1].get<std::string>())
            << name << ": " << pair[0];
    }
    fs::remove_all(folder);
  }
}

TEST(CTCTokenizer, FoldersThatMakeNoSenseAreNamed) {
  char place[] = "/tmp/gradus-ctc-XXXXXX";
  const fs::path folder = mkdtemp(place);
  const auto message = [&](const char* vocabulary, const char* config) {
    write_file_atomically(folder / "vocab.json", vocabulary);
    write_file_atomically(folder / "tokenizer_config.json", config);
    try {
      CTCTokenizer::from_pretrained(folder);
    } catch (const Error& error) {
      return error.id() + " " + error.message();
    }
    return std::string("read");
  };
  const auto* nested = R"({"eng": {"a": 0}, "deu": {"b": 0}})";
  EXPECT_NE(message(nested, "{}").find("no target_lang"), std::string::npos);
  EXPECT_NE(message(nested, R"({"target_lang": "fra"})").find("'fra'"), std::string::npos);
  EXPECT_NE(message(R"({"a": 0})", R"({"added_tokens_decoder": {"x": {"content": "b"}}})")
                .find("added_tokens_decoder"),
            std::string::npos);
  EXPECT_NE(message(R"({"a": 9000000000000000000})", "{}").find("the number of \"a\""),
            std::string::npos);
  EXPECT_EQ(message(R"({"a": 0})", "[]").substr(0, 9), "G-AUDIO-7");
  // A symbol without characters is nowhere in a text.
  EXPECT_EQ(
      message(R"({"a": 0})", R"({"added_tokens_decoder": {"9": {"content": "", "lstrip": true}}})"),
      "read");
  EXPECT_EQ(CTCTokenizer::from_pretrained(folder).encode("a"), std::vector<int64_t>{0});
  // added_tokens.json may name none; what it names has numbers.
  write_file_atomically(folder / "added_tokens.json", "{}");
  EXPECT_EQ(message(R"({"a": 0})", "{}"), "read");
  write_file_atomically(folder / "added_tokens.json", R"({"<b>": {}})");
  EXPECT_NE(message(R"({"a": 0})", "{}").find("the number of \"<b>\""), std::string::npos);
  fs::remove_all(folder);
}

TEST(CTCTokenizer, GapsInAVocabularyHaveRoom) {
  const CTCTokenizer tokenizer({{"a", 0}, {"b", 7}, {"|", 3}}, script_tokens());
  EXPECT_EQ(*tokenizer.pad_token_id(), 11);
  EXPECT_EQ(tokenizer.full_vocab_size(), 12);
}

TEST(CTCTokenizer, VocabularyIsTheScripts) {
  // sorted(set("ab ü" + " c")): space, a, b, c, ü; the space's number goes to the delimiter.
  const std::vector<std::string> texts{"ab ü ", "c "};
  EXPECT_EQ(vocabulary_json(ctc_vocabulary(texts, script_tokens())),
            R"({"a": 1, "b": 2, "c": 3, "\u00fc": 4, "|": 0, "[UNK]": 5, "[PAD]": 6})");
}

TEST(ErrorRates, EqualJiwer) {
  const auto texts = read_json(kTexts / "texts.json");
  for (const auto& row : texts.at("rates")) {
    const auto references = row.at("references").get<std::vector<std::string>>(),
               predictions = row.at("predictions").get<std::vector<std::string>>();
    EXPECT_EQ(word_error_rate(references, predictions), row.at("wer").get<double>()) << row;
    EXPECT_EQ(character_error_rate(references, predictions), row.at("cer").get<double>()) << row;
  }
  const std::vector<std::string> one{"a"}, none;
  EXPECT_THROW(word_error_rate(one, none), Error);
}

TEST(BeamDecode, FindsTheBestOfAllAlignments) {
  torch::manual_seed(3);
  constexpr int64_t kFrames = 5, kSymbols = 3;
  for (int round = 0; round < 20; ++round) {
    const auto table = torch::log_softmax(2 * torch::randn({kFrames, kSymbols}), -1);
    std::map<std::vector<int64_t>, double> sums;
    for (int64_t code = 0; code < 243; ++code) {  // all 3^5 alignments
      std::vector<int64_t> ids;
      int64_t rest = code, before = 0;
      double score = 0;
      for (int64_t frame = 0; frame < kFrames; ++frame, rest /= kSymbols) {
        const auto symbol = rest % kSymbols;
        score += table[frame][symbol].item<double>();
        if (symbol != 0 && symbol != before) ids.push_back(symbol);
        before = symbol;
      }
      sums[ids] += std::exp(score);
    }
    const auto best = std::max_element(
        sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto found = beam_decode(table);
    EXPECT_NEAR(std::exp(found.log_probability), best->second, 1e-6);
    EXPECT_NEAR(sums.at(found.ids), best->second, 1e-6);
  }
}

}  // namespace
}  // namespace gradus
