#include "../error_of.h"
#include "case_runner.h"

#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/collators.h>
#include <gradus/data/packing.h>

#include <gtest/gtest.h>

namespace gradus {
namespace {

using data_test::SmallTokenizer;
using Ids = std::vector<int64_t>;

std::shared_ptr<SmallTokenizer> tokenizer() { return std::make_shared<SmallTokenizer>(); }

Ids row(const torch::Tensor& tensor, int64_t index) {
  const auto values = tensor[index].to(at::kLong).contiguous();
  return {values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + values.numel()};
}

std::vector<Example> sentences(int64_t count, int64_t length) {
  std::vector<Example> rows;
  for (int64_t i = 0; i < count; ++i) {
    Ids ids;
    for (int64_t j = 0; j < length; ++j) ids.push_back(5 + (i * length + j) % 45);
    rows.push_back({{"input_ids", ids}});
  }
  return rows;
}

TEST(DefaultCollator,
     MakesLabelsOfTheRightType) {  // peer's test_default_with_dict and test_default_with_no_labels
  EXPECT_EQ(default_data_collator({{{"label", 1}}, {{"label", 2}}})["labels"].scalar_type(),
            at::kLong);
  EXPECT_EQ(default_data_collator({{{"label", 0.5}}})["labels"].scalar_type(), at::kFloat);
  EXPECT_EQ(default_data_collator({{{"label_ids", Ids{0, 1, 2}}}})["labels"].sizes().vec(),
            (Ids{1, 3}));
  EXPECT_FALSE(default_data_collator({{{"label", nullptr}, {"x", 1}}}).contains("labels"));
  EXPECT_EQ(
      default_data_collator({{{"label", torch::tensor(3, at::kInt)}}})["labels"].scalar_type(),
      at::kLong);
  EXPECT_EQ(
      message_of("G-DATA-6", [] { default_data_collator({{{"x", Value::Strings{"a"}}}}); }),
      "column 'x' cannot become a tensor: row 0 of the batch holds list of text, expected numbers");
  EXPECT_EQ(message_of("G-DATA-6", [] { default_data_collator({{{"x", 1}}, {{"x", nullptr}}}); }),
            "column 'x' cannot become a tensor: row 1 of the batch holds null, expected a number");
  EXPECT_EQ(
      message_of("G-DATA-7",
                 [] { default_data_collator({{{"x", torch::ones(2)}}, {{"x", torch::ones(3)}}}); }),
      "column 'x' cannot be stacked: row 1 of the batch has shape [3], the first row [2]");
  EXPECT_EQ(message_of("G-DATA-1", [] { default_data_collator({{{"x", 1}}, {{"y", 1}}}); }),
            "the row has no column 'x'; it has y");
}

TEST(DefaultCollator, StacksTensorsOfAnyLayout) {
  const auto square = torch::arange(6).view({2, 3});
  const auto batch = default_data_collator({{{"x", square.t()}}, {{"x", square.t() + 1}}});
  EXPECT_TRUE(at::equal(batch["x"], at::stack({square.t(), square.t() + 1})));
}

TEST(PaddingCollator, FillsUp) {  // peer's test_data_collator_with_padding
  const std::vector<Example> rows{{{"input_ids", Ids{0, 1, 2}}},
                                  {{"input_ids", Ids{0, 1, 2, 3, 4, 5}}}};
  auto batch = DataCollatorWithPadding({.tokenizer = tokenizer()})(rows);
  EXPECT_EQ(row(batch["input_ids"], 0), (Ids{0, 1, 2, 3, 3, 3}));
  EXPECT_EQ(row(batch["attention_mask"], 0), (Ids{1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(DataCollatorWithPadding({.tokenizer = tokenizer(),
                                     .padding = PaddingStrategy::max_length,
                                     .max_length = 10})(rows)["input_ids"]
                .size(1),
            10);
  EXPECT_EQ(DataCollatorWithPadding({.tokenizer = tokenizer(), .pad_to_multiple_of = 8})(
                rows)["input_ids"]
                .size(1),
            8);
  EXPECT_EQ(rows[0]["input_ids"].ints().size(), 3u);
  const auto square = torch::ones({1, 3, 3});
  auto masked = DataCollatorWithPadding({.tokenizer = tokenizer()})(
      {{{"input_ids", Ids{1, 2, 3}}, {"attention_mask", square}},
       {{"input_ids", Ids{1, 2, 3}}, {"attention_mask", square}}});
  EXPECT_EQ(masked["attention_mask"].sizes().vec(), (Ids{2, 1, 3, 3}));
}

TEST(PaddingCollator, SaysWhyItCannot) {
  const std::vector<Example> rows{{{"input_ids", Ids{1, 2}}}, {{"input_ids", Ids{1}}}};
  auto without_pad = tokenizer();
  without_pad->pad.reset();
  EXPECT_EQ(
      message_of("G-DATA-13", [&] { DataCollatorWithPadding({.tokenizer = without_pad})(rows); }),
      "padding was requested, but the tokenizer has no padding token");
  EXPECT_EQ(message_of("G-DATA-13", [] { DataCollatorWithPadding collator({}); }),
            "a collator that pads was made without a tokenizer");
  EXPECT_EQ(
      message_of("G-DATA-7",
                 [&] {
                   DataCollatorWithPadding(
                       {.tokenizer = tokenizer(), .padding = PaddingStrategy::do_not_pad})(rows);
                 }),
      "column 'input_ids' cannot be stacked: row 1 of the batch has 1 values, the first row 2");
  EXPECT_EQ(
      message_of("G-DATA-1",
                 [] { DataCollatorWithPadding({.tokenizer = tokenizer()})({{{"text", "a"}}}); }),
      "the row has no column 'input_ids'; it has text");
  EXPECT_EQ(
      message_of(
          "G-DATA-6",
          [] { DataCollatorWithPadding({.tokenizer = tokenizer()})({{{"input_ids", "a"}}}); }),
      "column 'input_ids' cannot become a tensor: row 0 of the batch holds text, expected a list "
      "of int");
}

TEST(Seq2SeqCollator, PreparesDecoderInputs) {
  const auto shift = [](const torch::Tensor& labels) { return labels + 1; };
  auto batch =
      DataCollatorForSeq2Seq({.tokenizer = tokenizer(), .prepare_decoder_input_ids = shift})(
          {{{"input_ids", Ids{5}}, {"labels", Ids{7, 8}}}});
  EXPECT_EQ(row(batch["decoder_input_ids"], 0), (Ids{8, 9}));
}

TEST(Seq2SeqCollator, DoesNotCutLabels) {
  const std::vector<Example> rows{{{"input_ids", Ids{5}}, {"labels", Ids{7, 8}}},
                                  {{"input_ids", Ids{5}}, {"labels", Ids{7, 8, 9, 9}}}};
  EXPECT_EQ(message_of("G-DATA-7",
                       [&] {
                         DataCollatorForSeq2Seq({.tokenizer = tokenizer(),
                                                 .padding = PaddingStrategy::max_length,
                                                 .max_length = 3})(rows);
                       }),
            "row 1 of the batch has 4 labels, which are padded to 3");
}

TEST(LanguageModelingCollator, ChecksItsOptions) {
  auto without_mask = tokenizer();
  without_mask->mask.reset();
  EXPECT_EQ(
      message_of("G-DATA-14",
                 [&] { DataCollatorForLanguageModeling collator({.tokenizer = without_mask}); }),
      "the tokenizer has no mask token, which masked language modelling needs");
  DataCollatorForLanguageModeling({.tokenizer = without_mask, .mlm = false});
  EXPECT_EQ(message_of("G-DATA-14",
                       [] {
                         DataCollatorForLanguageModeling collator(
                             {.tokenizer = tokenizer(), .mlm_probability = 1.5});
                       }),
            "mlm_probability is 1.5, expected a value from 0 to 1");
  EXPECT_EQ(message_of("G-DATA-14",
                       [] {
                         DataCollatorForLanguageModeling collator({.tokenizer = tokenizer(),
                                                                   .mask_replace_prob = 0.8,
                                                                   .random_replace_prob = 0.3});
                       }),
            "mask_replace_prob 0.8 and random_replace_prob 0.3 have a sum above 1");
  EXPECT_EQ(message_of("G-DATA-14",
                       [] {
                         DataCollatorForLanguageModeling collator(
                             {.tokenizer = tokenizer(), .mlm = false, .whole_word_mask = true});
                       }),
            "whole_word_mask is set without mlm");
  EXPECT_EQ(
      message_of("G-DATA-1",
                 [] {
                   DataCollatorForLanguageModeling({.tokenizer = tokenizer(),
                                                    .whole_word_mask = true,
                                                    .mask_replace_prob = 1,
                                                    .random_replace_prob = 0})(sentences(1, 4));
                 }),
      "whole_word_mask needs the column 'offset_mapping', which the rows do not have");
}

TEST(LanguageModelingCollator, MasksInTheStatedShares) {
  const auto rows = sentences(200, 100);
  const auto batch = DataCollatorForLanguageModeling({.tokenizer = tokenizer(), .seed = 42})(rows);
  const auto original =
      DataCollatorForLanguageModeling({.tokenizer = tokenizer(), .mlm = false})(rows)["input_ids"];
  const auto masked = batch["labels"] != -100;
  const auto share = [&](const torch::Tensor& part, const torch::Tensor& of) {
    return part.sum().item<double>() / of.sum().item<double>();
  };
  EXPECT_NEAR(share(masked, at::ones_like(masked)), 0.15, 0.01);
  EXPECT_NEAR(share(masked & (batch["input_ids"] == 4), masked), 0.8, 0.03);
  EXPECT_NEAR(share(masked & (batch["input_ids"] == original), masked), 0.1, 0.03);
  EXPECT_TRUE(at::equal(batch["labels"].masked_select(masked), original.masked_select(masked)));
  EXPECT_TRUE(
      at::equal(batch["input_ids"].masked_select(~masked), original.masked_select(~masked)));
}

TEST(LanguageModelingCollator,
     DrawsFromSeedEpochAndBatch) {  // peer's test__whole_word_masking and seed tests
  const auto data = from_examples(sentences(60, 32));
  const auto masks = [&](int64_t seed, int64_t workers, int64_t epoch, int64_t first) {
    auto iterator =
        DataLoader({.dataset = data,
                    .batch_size = 4,
                    .collator = DataCollatorForLanguageModeling({.tokenizer = tokenizer()}),
                    .num_workers = workers,
                    .seed = seed})
            .iterate(epoch, first);
    std::vector<torch::Tensor> labels;
    while (auto batch = iterator.next()) labels.push_back(batch->at("labels"));
    return at::cat(labels);
  };
  const auto reference = masks(42, 0, 0, 0);
  EXPECT_TRUE(at::equal(reference, masks(42, 3, 0, 0)));
  EXPECT_TRUE(at::equal(reference.slice(0, 20), masks(42, 2, 0, 5)));
  EXPECT_FALSE(at::equal(reference, masks(43, 0, 0, 0)));
  EXPECT_FALSE(at::equal(reference, masks(42, 0, 1, 0)));
  EXPECT_FALSE(at::equal(reference.slice(0, 0, 4) == -100, reference.slice(0, 4, 8) == -100));
}

TEST(LanguageModelingCollator,
     FindsWholeWords) {  // the shape of the peer's word_ids and mask tables
  const auto offsets =
      torch::tensor({0, 0, 0, 3, 3, 5, 6, 8, 8, 9, 0, 0}, at::kLong).view({1, 6, 2});
  const auto special = torch::tensor({1, 0, 0, 0, 0, 1}, at::kLong).view({1, 6});
  const auto [ids, prob_mask] = DataCollatorForLanguageModeling::word_ids(offsets, special);
  EXPECT_EQ(row(ids, 0), (Ids{-1, 1, 1, 2, 2, -1}));
  EXPECT_EQ(row(prob_mask, 0), (Ids{1, 0, 1, 0, 1, 1}));
  const auto mask = torch::tensor({0, 0, 0, 1, 0, 0}, at::kLong).view({1, 6}).to(at::kBool);
  EXPECT_EQ(row(DataCollatorForLanguageModeling::whole_words(ids, mask), 0),
            (Ids{0, 0, 0, 1, 1, 0}));
}

TEST(PermutationCollator, NeedsAnEvenLength) {
  EXPECT_EQ(message_of("G-DATA-14",
                       [] {
                         DataCollatorForPermutationLanguageModeling({.tokenizer = tokenizer()})(
                             sentences(2, 5));
                       }),
            "permutation language modelling got rows of 5 tokens, expected an even number");
  const auto batch = DataCollatorForPermutationLanguageModeling(
      {.tokenizer = tokenizer(), .seed = 1})(sentences(2, 10));
  EXPECT_EQ(batch["perm_mask"].sizes().vec(), (Ids{2, 10, 10}));
  EXPECT_EQ(batch["target_mapping"].sizes().vec(), (Ids{2, 10, 10}));
}

TEST(RemoveColumnsCollator, SaysItOnce) {  // peer's test_remove_columns_collator
  struct Sink : LogSink {
    void message(LogLevel, std::string_view line) override { lines.emplace_back(line); }
    void print(std::string_view) override {}
    std::vector<std::string> lines;
  };
  const auto sink = std::make_shared<Sink>();
  const auto before = set_log_sink(sink);
  const auto level = log_level();
  set_log_level(LogLevel::info);
  const RemoveColumnsCollator collator(
      {.columns = {"col1", "col2"}, .model_name = "Model", .description = "training"});
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(collator({{{"col1", 1}, {"col2", 2}, {"col3", 3}}}).names(),
              (std::vector<std::string>{"col1", "col2"}));
  set_log_level(level);
  set_log_sink(before);
  ASSERT_EQ(sink->lines.size(), 1u);
  EXPECT_NE(sink->lines[0].find("columns in the training set don't have a corresponding argument "
                                "in `Model.forward` and have been ignored: col3."),
            std::string::npos)
      << sink->lines[0];
}

TEST(Packing, HasThePeersExample) {
  const auto data = from_examples({{{"input_ids", Ids{1, 2, 3, 4, 5}}},
                                   {{"input_ids", Ids{6, 7}}},
                                   {{"input_ids", Ids{8, 9, 10}}},
                                   {{"input_ids", Ids{11}}}});
  const auto rows = [&](PackingStrategy strategy) {
    std::vector<Ids> result;
    const auto packed = pack_dataset(data, {.seq_length = 4, .strategy = strategy});
    for (int64_t i = 0; i < packed->size(); ++i)
      result.push_back(packed->get(i)["input_ids"].ints());
    return result;
  };
  EXPECT_EQ(rows(PackingStrategy::bfd), (std::vector<Ids>{{1, 2, 3, 4}, {8, 9, 10, 11}, {6, 7}}));
  EXPECT_EQ(rows(PackingStrategy::bfd_split),
            (std::vector<Ids>{{1, 2, 3, 4}, {8, 9, 10, 5}, {6, 7, 11}}));
  EXPECT_EQ(rows(PackingStrategy::wrapped),
            (std::vector<Ids>{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11}}));
  EXPECT_EQ(message_of("G-DATA-15", [] { pack_dataset(from_examples({{{"text", "a"}}}), {}); }),
            "row 0 cannot be packed: column 'text' holds text, expected a list of int");
  EXPECT_EQ(
      message_of("G-DATA-15",
                 [] { pack_dataset(from_examples({{{"a", Ids{1}}, {"b", Ids{1, 2}}}}), {}); }),
      "row 0 cannot be packed: column 'b' has 2 values, the columns before it 1");
  EXPECT_EQ(message_of("G-DATA-15", [] { packing_strategy("ffd"); }),
            "'ffd' is not a packing strategy");
}

TEST(Packing, KeepsSequencesApart) {
  const auto batch = DataCollatorForSft({.pad_token_id = 0, .padding_free = true})(
      {{{"input_ids", Ids{1, 2, 3, 4, 5}}, {"seq_lengths", Ids{3, 2}}},
       {{"input_ids", Ids{6}}, {"seq_lengths", Ids{1}}}});
  const auto bounds = batch["cu_seq_lens_q"];
  EXPECT_EQ(bounds.scalar_type(), at::kInt);
  EXPECT_TRUE(at::equal(bounds, torch::tensor({0, 3, 5, 6}, at::kInt)));
  EXPECT_TRUE(at::equal(batch["position_ids"], position_ids_from(bounds)));
  EXPECT_TRUE(at::equal(cu_seq_lens(batch["position_ids"]), bounds));
  const auto mask = block_diagonal_mask(bounds)[0][0];
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t j = 0; j < 6; ++j) {
      const bool same =
          (i < 3 && j < 3) || (i >= 3 && i < 5 && j >= 3 && j < 5) || (i == 5 && j == 5);
      EXPECT_EQ(mask[i][j].item<bool>(), same && j <= i) << i << " " << j;
    }
  }
  EXPECT_EQ(block_diagonal_mask(bounds, false).sum().item<int64_t>(), 9 + 4 + 1);
  EXPECT_EQ(message_of("G-DATA-7",
                       [] {
                         DataCollatorForSft({.padding_free = true})(
                             {{{"input_ids", Ids{1, 2}}, {"seq_lengths", Ids{3}}}});
                       }),
            "row 0 of the batch: seq_lengths have a sum of 3, the row has 2 tokens");
}

TEST(PreferenceCollator, PutsTheChosenFirst) {
  const auto batch = DataCollatorForPreference({.pad_token_id = 0})(
      {{{"prompt_ids", Ids{1, 2, 3}}, {"chosen_ids", Ids{4, 5}}, {"rejected_ids", Ids{6}}},
       {{"prompt_ids", Ids{7, 8}}, {"chosen_ids", Ids{9}}, {"rejected_ids", Ids{10, 11}}}});
  EXPECT_EQ(row(batch["input_ids"], 3), (Ids{7, 8, 10, 11, 0}));
  EXPECT_EQ(row(batch["completion_mask"], 0), (Ids{0, 0, 0, 1, 1}));
  EXPECT_EQ(message_of(
                "G-DATA-1",
                [] { DataCollatorForPreference({.pad_token_id = 0})({{{"prompt_ids", Ids{1}}}}); }),
            "the row has no column 'chosen_ids'; it has prompt_ids");
}

}  // namespace
}  // namespace gradus
