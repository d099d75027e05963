#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "fixtures.h"

namespace gradus {
namespace {

using nlohmann::json;

json optionals(const std::vector<std::optional<int64_t>>& values) {
  auto list = json::array();
  for (const auto& value : values) list.push_back(value ? json(*value) : json());
  return list;
}

void expect_window(const Encoding& ours, const json& theirs, const std::string& what) {
  EXPECT_EQ(json(ours.ids()), theirs["ids"]) << what;
  EXPECT_EQ(json(ours.type_ids()), theirs["type_ids"]) << what;
  EXPECT_EQ(json(ours.attention_mask()), theirs["attention_mask"]) << what;
  EXPECT_EQ(json(ours.special_tokens_mask()), theirs["special_tokens_mask"]) << what;
  EXPECT_EQ(json(ours.offsets()), theirs["offsets"]) << what;
  EXPECT_EQ(optionals(ours.word_ids()), theirs["word_ids"]) << what;
  EXPECT_EQ(optionals(ours.sequence_ids()), theirs["sequence_ids"]) << what;
}

template <class F>
std::string error_of(F call, const char* id) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), id) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error, expected " << id;
  return {};
}

struct TemporaryFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("gradus-text-" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "-" +
       std::to_string(getpid()));
  TemporaryFolder() { std::filesystem::create_directories(path); }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
};

class FromPython : public ::testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<Tokenizer> tokenizer = Tokenizer::from_pretrained(text_fixture(GetParam()));
  json cases = read_json(text_fixture(GetParam()) / "cases.json");
};

TEST_P(FromPython, EncodesAndDecodesAsTransformers) {
  ASSERT_GT(cases["encode"].size(), 50u);
  for (const auto& one : cases["encode"]) {
    const auto what = one.dump().substr(0, 160);
    auto options = encode_options(one["options"]);
    if (one.contains("pair")) options.text_pair = one["pair"].get<std::string>();
    if (one.contains("error")) {
      EXPECT_THROW(tokenizer->encode(one["text"].get<std::string>(), options), Error) << what;
      continue;
    }
    const auto encoding = tokenizer->encode(one["text"].get<std::string>(), options);
    ASSERT_EQ(1 + encoding.overflowing().size(), one["windows"].size()) << what;
    expect_window(encoding, one["windows"][0], what);
    for (size_t i = 0; i < encoding.overflowing().size(); ++i)
      expect_window(encoding.overflowing()[i], one["windows"][i + 1], what);
    EXPECT_EQ(json(encoding.example().names()), one["columns"]) << what;
    EXPECT_EQ(tokenizer->decode(encoding.ids()), one["decoded"][0].get<std::string>()) << what;
    EXPECT_EQ(tokenizer->decode(encoding.ids(), {.skip_special_tokens = true}),
              one["decoded"][1].get<std::string>())
        << what;
  }
}

TEST_P(FromPython, EncodesWordsAsTransformers) {
  for (const auto& one : cases["words"]) {
    expect_window(tokenizer->encode_words(one["words"].get<std::vector<std::string>>()),
                  one["windows"][0], one["words"].dump());
  }
}

TEST_P(FromPython, KnowsVocabularyAndSpecialTokens) {
  const auto& facts = cases["facts"];
  EXPECT_EQ(tokenizer->full_vocab_size(), facts["full_vocab_size"]);
  EXPECT_EQ(tokenizer->vocab_size(), facts["vocab_size"]);
  EXPECT_EQ(json(tokenizer->all_special_ids()), facts["all_special_ids"]);
  EXPECT_EQ(json(tokenizer->all_special_tokens()), facts["all_special_tokens"]);
}

TEST_P(FromPython, ReadsBackWhatItSaves) {
  const TemporaryFolder folder;
  tokenizer->save_pretrained(folder.path);
  const auto again = Tokenizer::from_pretrained(folder.path);
  EXPECT_EQ(again->all_special_ids(), tokenizer->all_special_ids());
  EXPECT_EQ(again->model_max_length(), tokenizer->model_max_length());
  EXPECT_EQ(again->padding_side(), tokenizer->padding_side());
  EXPECT_EQ(again->truncation_side(), tokenizer->truncation_side());
  EXPECT_EQ(again->model_input_names(), tokenizer->model_input_names());
  EXPECT_EQ(again->has_chat_template(), tokenizer->has_chat_template());
  for (const auto& one : cases["encode"]) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(again->encode(text).ids(), tokenizer->encode(text).ids());
  }
  // Nothing of a call stays in the file.
  const auto saved = read_json(folder.path / "tokenizer.json");
  EXPECT_TRUE(saved["truncation"].is_null());
  EXPECT_TRUE(saved["padding"].is_null());
}

TEST_P(FromPython, ManyThreadsGiveTheSame) {
  std::vector<std::string> texts;
  for (const auto& one : cases["encode"]) texts.push_back(one["text"].get<std::string>());
  const auto alone = tokenizer->encode_batch(texts, {.max_length = 20, .truncation = true}, {}, 1);
  ASSERT_EQ(alone.size(), texts.size());
  std::vector<std::thread> threads;
  std::atomic<int> different = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto together =
          tokenizer->encode_batch(texts, {.max_length = 20, .truncation = true}, {}, 1 + t);
      for (size_t i = 0; i < texts.size(); ++i)
        different += together[i].ids() != alone[i].ids() ||
                     tokenizer->encode(texts[i], {.max_length = 20}).ids() != alone[i].ids();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, FromPython, ::testing::Values("bpe", "wordpiece", "unigram"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Tokenizer, TurnsIntoARowAndABatch) {
  const auto tokenizer = Tokenizer::from_pretrained(text_fixture("wordpiece"));
  const std::function<Example(const Example&)> encode = [&](const Example& row) {
    return tokenizer->encode(row.at("text").str(), {.max_length = 64, .truncation = true});
  };
  const auto row = encode({{"text", "the river"}});
  EXPECT_EQ(row.names(),
            (std::vector<std::string>{"input_ids", "token_type_ids", "attention_mask"}));
  const auto batch = tokenizer->encode("the river").batch();
  EXPECT_EQ(batch["input_ids"].sizes(),
            (std::vector<int64_t>{1, static_cast<int64_t>(row.at("input_ids").ints().size())}));
  EXPECT_EQ(tokenizer->decode(batch["input_ids"][0], {.skip_special_tokens = true}), "the river");
  EXPECT_EQ(
      tokenizer->decode(batch["input_ids"][0].to(torch::kInt32), {.skip_special_tokens = true}),
      "the river");
  EXPECT_EQ(tokenizer->batch_decode(batch["input_ids"], {.skip_special_tokens = true}),
            std::vector<std::string>{"the river"});
  const auto extra = tokenizer
                         ->encode("the river", {.return_offsets_mapping = true,
                                                .return_special_tokens_mask = true,
                                                .return_length = true})
                         .example();
  EXPECT_EQ(extra.names(),
            (std::vector<std::string>{"input_ids", "token_type_ids", "attention_mask",
                                      "special_tokens_mask", "offset_mapping", "length"}));
  EXPECT_EQ(json(extra.at("offset_mapping").json()[0]), json({0, 0}));
}

TEST(Tokenizer, IdsOnlyGivesTheSameIds) {
  for (const char* kind : {"bpe", "wordpiece", "unigram"}) {
    const auto tokenizer = Tokenizer::from_pretrained(text_fixture(kind));
    EncodeOptions options = {.max_length = 24,
                             .truncation = "only_second",
                             .text_pair =
                                 "The old lighthouse keeps bread and butter; nobody knows why. "
                                 "The café sings.",
                             .stride = 2,
                             .return_overflowing_tokens = true};
    const auto full = tokenizer->encode("Why?", options);
    options.ids_only = true;
    const auto lean = tokenizer->encode("Why?", options);
    EXPECT_EQ(full.ids(), lean.ids());
    EXPECT_EQ(full.type_ids(), lean.type_ids());
    EXPECT_EQ(full.overflowing().size(), lean.overflowing().size());
    EXPECT_NE(error_of([&] { lean.offsets(); }, "G-TEXT-4").find("ids_only"), std::string::npos);
  }
}

TEST(Tokenizer, PadsAsTransformers) {
  const auto tokenizer = Tokenizer::from_pretrained(text_fixture("bpe"));  // pads left
  const std::vector<std::string> texts = {"the river", "a"};
  const auto batch = tokenizer->pad({tokenizer->encode(texts[0]), tokenizer->encode(texts[1])},
                                    {.pad_to_multiple_of = 8});
  EXPECT_EQ(batch["input_ids"].size(1), 8);
  EXPECT_EQ(batch["attention_mask"][1].sum().item<int64_t>(), 1);
  EXPECT_EQ(batch["attention_mask"][1][7].item<int64_t>(), 1);
  EXPECT_EQ(batch["input_ids"][1][0].item<int64_t>(), *tokenizer->pad_token_id());
  const auto rows = tokenizer->encode_batch(texts, {.padding = true});
  EXPECT_EQ(rows[0].size(), rows[1].size());
  EXPECT_EQ(rows[1].attention_mask().front(), 0);
  const auto empty = tokenizer->encode("", {.max_length = 3, .padding = "max_length"});
  EXPECT_EQ(empty.word_ids(), std::vector<std::optional<int64_t>>(3));
  EXPECT_EQ(empty.offsets().size(), 3u);
  const auto none = Tokenizer::from_file(text_fixture("bpe") / "tokenizer.json");
  EXPECT_NE(
      error_of([&] { none->encode("a", {.padding = true}); }, "G-TEXT-10").find("no padding token"),
      std::string::npos);
}

TEST(Tokenizer, AddsTokens) {
  const auto tokenizer = Tokenizer::from_pretrained(text_fixture("bpe"));
  const auto size = tokenizer->full_vocab_size();
  EXPECT_EQ(tokenizer->add_special_tokens({{"pad_token", "[PAD]"}}), 1);
  EXPECT_EQ(tokenizer->full_vocab_size(), size + 1);
  EXPECT_EQ(tokenizer->pad_token_id(), size);
  EXPECT_EQ(tokenizer->encode("a[PAD]b").ids()[1], size);
  EXPECT_EQ(tokenizer->decode({size}, {.skip_special_tokens = true}), "");
  EXPECT_EQ(tokenizer->add_tokens({"lighthouses", "lighthouses"}), 1);
  tokenizer->set_special_token("sep_token", "[PAD]");
  EXPECT_EQ(tokenizer->sep_token_id(), size);
  EXPECT_NE(error_of([&] { tokenizer->set_special_token("mask_token", "[NO]"); }, "G-TEXT-5")
                .find("[NO]"),
            std::string::npos);
  EXPECT_EQ(tokenizer->encode("[PAD]", {.split_special_tokens = true}).ids().size(), 5u);
}

TEST(Tokenizer, TrainsFromFiles) {
  const TemporaryFolder folder;
  std::ofstream(folder.path / "a.txt")
      << "low lower lowest newer newest wider widest\nlow low lower\n";
  const auto bpe = Tokenizer::train_bpe({folder.path / "a.txt"}, {.vocab_size = 270});
  EXPECT_EQ(bpe->decode(bpe->encode("lowest newer").ids()), "lowest newer");
  EXPECT_EQ(bpe->eos_token_id(), 0);
  const auto wordpiece =
      Tokenizer::train_wordpiece({folder.path / "a.txt"}, {.vocab_size = 60, .min_frequency = 1});
  EXPECT_EQ(wordpiece->decode(wordpiece->encode("Lower newest").ids()), "[CLS] lower newest [SEP]");
  EXPECT_EQ(wordpiece->mask_token_id(), 4);
  wordpiece->save_pretrained(folder.path / "wp");
  EXPECT_EQ(Tokenizer::from_pretrained(folder.path / "wp")->encode("lower").ids(),
            wordpiece->encode("lower").ids());
  EXPECT_NE(error_of([&] { Tokenizer::train_bpe({folder.path / "none.txt"}); }, "G-TEXT-6")
                .find("No such file"),
            std::string::npos);
}

TEST(Tokenizer, RefusesBadInputWithReasons) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of([&] { Tokenizer::from_pretrained(folder.path); }, "G-TEXT-2")
                .find("there is no tokenizer.json in it"),
            std::string::npos);
  EXPECT_NE(error_of([&] { Tokenizer::from_pretrained(folder.path / "nowhere"); }, "G-TEXT-2")
                .find("not a folder"),
            std::string::npos);
  write_file_atomically(folder.path / "tokenizer.json", "{\"model\": 3}");
  EXPECT_NE(
      error_of([&] { Tokenizer::from_pretrained(folder.path); }, "G-TEXT-2").find("tokenizer.json"),
      std::string::npos);
  const auto tokenizer = Tokenizer::from_pretrained(text_fixture("wordpiece"));
  EXPECT_NE(
      error_of([&] { tokenizer->encode("a\xff"); }, "G-TEXT-3").find("not valid UTF-8 at byte 1"),
      std::string::npos);
  EXPECT_NE(error_of([&] { tokenizer->encode("\xed\xa0\x80"); }, "G-TEXT-3").find("byte 0"),
            std::string::npos);
  const std::vector<std::string> texts = {"fine", "b\xc3"};
  EXPECT_NE(error_of([&] { tokenizer->encode_batch(texts); }, "G-TEXT-3").find("text 1 of 2"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { tokenizer->encode("a b", {.max_length = 1, .truncation = true}); }, "G-TEXT-3")
          .find("no room for the 2 special tokens"),
      std::string::npos);
  EXPECT_NE(
      error_of(
          [&] { tokenizer->encode("a b c d", {.max_length = 4, .truncation = true, .stride = 2}); },
          "G-TEXT-3")
          .find("stride 2 must be below 2"),
      std::string::npos);
  EXPECT_NE(error_of([&] { tokenizer->encode("a", {.truncation = "only_fist"}); }, "G-TEXT-9")
                .find("Did you mean only_first?"),
            std::string::npos);
  EXPECT_NE(error_of([&] { tokenizer->decode({5, -100}); }, "G-TEXT-5").find("-100"),
            std::string::npos);
  EXPECT_EQ(tokenizer->decode({999999}), "");
  EXPECT_EQ(tokenizer->convert_tokens_to_ids("nowhere"), tokenizer->unk_token_id());
}

}  // namespace
}  // namespace gradus
