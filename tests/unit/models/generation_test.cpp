#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/text_streamer.h>
#include <gtest/gtest.h>

#include "../error_of.h"
#include "fixed_model.h"
#include "temporary_folder.h"

namespace gradus {
namespace {

using nlohmann::json;
using torch::Tensor;
using Ids = std::vector<int64_t>;

#define EXPECT_TEXT(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::shared_ptr<PreTrainedModel> tiny_model() {
  torch::manual_seed(1);
  auto model = AutoModelForCausalLM::from_config({{"model_type", "llama"},
                                                  {"vocab_size", 40},
                                                  {"hidden_size", 16},
                                                  {"intermediate_size", 24},
                                                  {"num_hidden_layers", 2},
                                                  {"num_attention_heads", 4},
                                                  {"num_key_value_heads", 2},
                                                  {"max_position_embeddings", 64},
                                                  {"initializer_range", 0.5},
                                                  {"bos_token_id", 1},
                                                  {"eos_token_id", 2}});
  return model;
}

struct WarningLines : LogSink {
  void message(LogLevel level, std::string_view line) override {
    if (level == LogLevel::warning) lines.emplace_back(line);
  }
  void print(std::string_view) override {}
  std::vector<std::string> lines;
};

Batch prompt() { return {{"input_ids", torch::tensor({{5, 6, 7}})}}; }

TEST(Generate, CacheChangesNothing) {
  const auto model = tiny_model();
  for (const int64_t beams : {1, 3}) {
    const auto with = model->generate(prompt(), {.max_new_tokens = 12, .num_beams = beams});
    const auto without =
        model->generate(prompt(), {.max_new_tokens = 12, .num_beams = beams, .use_cache = false});
    EXPECT_TRUE(torch::equal(with, without)) << with << without;
  }
}

TEST(Generate, LeftPaddingChangesNothing) {
  const auto model = tiny_model();
  model->generation_config.options.eos_token_id.reset();
  const GenerationOptions options{.max_new_tokens = 10};
  const auto alone = model->generate(prompt(), options);
  const auto padded =
      model->generate({{"input_ids", torch::tensor({{9, 8, 7, 6, 5}, {0, 0, 5, 6, 7}})},
                       {"attention_mask", torch::tensor({{1, 1, 1, 1, 1}, {0, 0, 1, 1, 1}})}},
                      options);
  EXPECT_TRUE(torch::equal(padded[1].narrow(0, 5, 10), alone[0].narrow(0, 3, 10)));
}

TEST(Generate, LeavesModeAndGradientsAlone) {
  const auto model = tiny_model();
  model->train();
  const auto ids = model->generate(prompt(), {.max_new_tokens = 2});
  EXPECT_TRUE(model->is_training());
  EXPECT_TRUE(torch::GradMode::is_enabled());
  EXPECT_FALSE(ids.requires_grad());
  EXPECT_EQ(ids.size(1), 5);
}

TEST(Generate, StopsWhereItShould) {
  FixedModel model(torch::tensor({0.0, 3.0, 2.0}));
  EXPECT_EQ(model.generate(prompt(), {.max_length = 6}).size(1), 6);
  EXPECT_EQ(model.generate(prompt(), {.max_new_tokens = 9, .eos_token_id = 1}).size(1), 4);
  EXPECT_EQ(model
                .generate(prompt(),
                          {.max_new_tokens = 9, .min_new_tokens = 3, .eos_token_id = TokenIds{1}})
                .size(1),
            7);
  EXPECT_EQ(model.generate(prompt(), {.max_new_tokens = 9, .eos_token_id = TokenIds{0, 1}}).size(1),
            4);
  EXPECT_EQ(model.generate(prompt(), {}).size(1), 23);
  GenerationOptions options{.max_new_tokens = 9};
  options.stopping_criteria = {[](std::span<const int64_t> row) { return row.size() == 8; }};
  EXPECT_EQ(model.generate(prompt(), options).size(1), 8);
  GenerationOptions text{.max_new_tokens = 9, .stop_strings = std::vector<std::string>{"bbbb"}};
  text.decode = [](const Ids& ids) {
    std::string letters;
    for (const auto id : ids) letters += static_cast<char>('a' + id % 3);
    return letters;
  };
  // The prompt reads "cab", so the fourth b is the third new token.
  EXPECT_EQ(model.generate(prompt(), text).size(1), 6);
}

TEST(Generate, StopsWhereThePositionsEnd) {
  torch::manual_seed(1);
  const auto model = AutoModelForCausalLM::from_config({{"model_type", "gpt2"},
                                                        {"vocab_size", 40},
                                                        {"n_embd", 16},
                                                        {"n_layer", 1},
                                                        {"n_head", 2},
                                                        {"n_positions", 8}});
  EXPECT_EQ(model->position_limit(), 8);
  model->generation_config.options.eos_token_id.reset();
  const auto sink = std::make_shared<WarningLines>();
  const auto before = set_log_sink(sink);
  const auto fits = model->generate(prompt(), {.max_new_tokens = 6});
  EXPECT_TRUE(sink->lines.empty()) << sink->lines.front();
  const auto cut = model->generate(prompt(), {.max_new_tokens = 50});
  const auto beams = model->generate(prompt(), {.max_new_tokens = 50, .num_beams = 2});
  const auto padded = model->generate({{"input_ids", torch::tensor({{0, 0, 5, 6, 7}})},
                                       {"attention_mask", torch::tensor({{0, 0, 1, 1, 1}})}},
                                      {.max_new_tokens = 50});
  set_log_sink(before);
  EXPECT_EQ(fits.size(1), 9);  // the last token is not read, so it needs no position
  EXPECT_TRUE(torch::equal(cut, fits));
  EXPECT_EQ(beams.size(1), 9);
  EXPECT_TRUE(torch::equal(padded.narrow(1, 5, 6), fits.narrow(1, 3, 6)));
  ASSERT_EQ(sink->lines.size(), 3u);
  EXPECT_TEXT(sink->lines[0],
              "Generation stopped after 6 new tokens, where the model's 8 positions end; "
              "max_new_tokens (=50) asks for more");
  const Batch nine{{"input_ids", torch::ones({1, 9}, torch::kLong)}};
  EXPECT_EQ(message_of("G-GEN-2", [&] { model->generate(nine, {.max_new_tokens = 1}); }),
            "generate: the prompt has 9 tokens, but the model has 8 positions");
  EXPECT_EQ(tiny_model()->position_limit(), std::nullopt) << "rotary positions have no end";
}

TEST(Generate, AppliesOwnProcessors) {
  FixedModel model(torch::tensor({0.0, 3.0, 2.0}));
  GenerationOptions options{.max_new_tokens = 2};
  options.logits_processors = {[](const Tensor&, Tensor scores) { return scores.neg(); }};
  EXPECT_TRUE(
      torch::equal(model.generate(prompt(), options)[0].narrow(0, 3, 2), torch::tensor({0, 0})));
}

TEST(Generate, RefusesWhatMakesNoSense) {
  const auto model = tiny_model();
  const auto with = [&](const GenerationOptions& options) {
    return error_of([&] { model->generate(prompt(), options); });
  };
  EXPECT_TEXT(with({.max_new_tokens = 0}),
              "generate: max_new_tokens must be at least 1, received 0 [G-GEN-2]");
  EXPECT_TEXT(with({.max_length = 3}), "the prompt has 3 tokens, but max_length is 3");
  EXPECT_TEXT(with({.do_sample = true, .temperature = 0.0}),
              "temperature must be greater than 0 (use do_sample=false for greedy search), "
              "received 0.0 [G-GEN-2]");
  EXPECT_TEXT(with({.temperature = std::nan("")}), "temperature must be greater than 0");
  EXPECT_TEXT(with({.do_sample = true, .top_p = 1.5}), "top_p must be from 0 to 1, received 1.5");
  EXPECT_TEXT(with({.num_return_sequences = 2}),
              "num_return_sequences must be 1 with greedy search");
  EXPECT_TEXT(with({.num_beams = 2, .num_return_sequences = 3}),
              "num_return_sequences must be at most num_beams (2), received 3");
  EXPECT_TEXT(with({.stop_strings = std::vector<std::string>{"x"}}),
              "given together with `decode`");
  EXPECT_TEXT(error_of([&] { model->generate({}, {}); }) +
                  error_of([&] { FixedModel(torch::zeros({2})).generate({}, {}); }),
              "the batch holds no input_ids (it is empty)");
  const auto classifier = AutoModelForSequenceClassification::from_config(model->config());
  EXPECT_TEXT(error_of([&] { classifier->generate(prompt()); }),
              "LlamaForSequenceClassification cannot generate");
}

TEST(Generate, StreamsOneRow) {
  const auto model = tiny_model();
  Ids seen;
  GenerationOptions options{.max_new_tokens = 5};
  options.streamer = [&](std::span<const int64_t> ids) {
    seen.insert(seen.end(), ids.begin(), ids.end());
  };
  const auto made = model->generate(prompt(), options);
  EXPECT_EQ(seen,
            Ids(made.const_data_ptr<int64_t>(), made.const_data_ptr<int64_t>() + made.numel()));
  options.num_beams = 2;
  EXPECT_TEXT(error_of([&] { model->generate(prompt(), options); }),
              "streamer must be unset with several beams or sequences");
  options.num_beams = 1;
  EXPECT_TEXT(
      error_of([&] { model->generate({{"input_ids", torch::tensor({{5, 6}, {6, 7}})}}, options); }),
      "a streamer takes one row, received 2");
}

TEST(TextStreamer, WritesWholeWords) {
  std::vector<std::string> pieces;
  const std::vector<std::string> words = {"Hel",          "lo ",          "wor", "ld", "!\n",
                                          "\xE4\xBD\xA0", "\xE5\xA5\xBD", " a",  "b"};
  const auto decode = [&](const Ids& ids) {
    std::string text;
    for (const auto id : ids) text += words[static_cast<size_t>(id)];
    return text;
  };
  TextStreamer streamer(decode, [&](std::string_view piece) { pieces.emplace_back(piece); });
  streamer.put(Ids{0, 0});  // the prompt
  for (int64_t id = 0; id < 9; ++id) streamer.put(std::span(&id, 1));
  streamer.end();
  EXPECT_EQ(pieces, (std::vector<std::string>{"Hello ", "world!\n", "\xE4\xBD\xA0", "\xE5\xA5\xBD",
                                              " ", "ab"}));
}

/// What is said while it lives.
class Heard : public LogSink {
 public:
  void message(LogLevel, std::string_view line) override { text += std::string(line) + "\n"; }
  void print(std::string_view) override {}
  std::string text;
};

TEST(Generate, SaysWhatCannotBeMet) {
  const auto model = tiny_model();
  const auto heard = std::make_shared<Heard>();
  const auto before = set_log_sink(heard);
  model->generate(prompt(),
                  {.max_length = 9, .max_new_tokens = 3, .min_length = 4, .min_new_tokens = 8});
  set_log_sink(before);
  EXPECT_TEXT(heard->text,
              "Both max_new_tokens (=3) and max_length (=9) are set; max_new_tokens is used.");
  EXPECT_TEXT(heard->text,
              "Both min_new_tokens (=8) and min_length (=4) are set; min_new_tokens is used.");
  EXPECT_TEXT(heard->text,
              "Unfeasible length constraints: at least 11 tokens are requested, but at most 6 are "
              "possible.");
  model->generation_config.other = {
      {"num_beam_groups", 1}, {"guidance_scale", nullptr}, {"dola_layers", "high"}};
  EXPECT_TEXT(error_of([&] { model->generate(prompt()); }),
              "the model's generation_config.json sets dola_layers to \"high\", which cannot be "
              "followed here [G-GEN-2]");
}

TEST(Generate, PositionsAndTypesOfNewTokensFollowThoseOfThePrompt) {
  const auto model = AutoModelForCausalLM::from_config({{"model_type", "gpt2"},
                                                        {"vocab_size", 40},
                                                        {"n_positions", 32},
                                                        {"n_embd", 8},
                                                        {"n_layer", 1},
                                                        {"n_head", 2},
                                                        {"eos_token_id", nullptr}});
  model->eval();
  const auto ids = torch::tensor({{5, 6, 7}}), positions = torch::tensor({{9, 3, 4}}),
             types = torch::tensor({{11, 12, 13}});
  const auto text =
      model->generate({{"input_ids", ids}, {"position_ids", positions}, {"token_type_ids", types}},
                      {.max_new_tokens = 3});
  const Batch whole{{"input_ids", text.narrow(1, 0, 5)},
                    {"position_ids", torch::tensor({{9, 3, 4, 5, 6}})},
                    {"token_type_ids", torch::tensor({{11, 12, 13, 13, 13}})},
                    {"attention_mask", torch::ones({1, 5}, torch::kLong)}};
  EXPECT_TRUE(torch::equal(model->forward(whole).logits().argmax(-1).narrow(1, 2, 3),
                           text.narrow(1, 3, 3)));
  EXPECT_TEXT(error_of([&] {
                model->generate({{"input_ids", ids}, {"position_ids", torch::tensor({{1, 2}})}});
              }),
              "position_ids have shape [1, 2], input_ids [1, 3]");
  EXPECT_TEXT(error_of([&] { model->generate({{"inputs_embeds", torch::ones({1, 2, 8})}}); }),
              "text can only be continued from token ids");
}

TEST(Generate, StartsFromTheFirstTokenWithoutAPrompt) {
  const auto ids = tiny_model()->generate({}, {.max_new_tokens = 3});
  EXPECT_EQ(ids[0][0].item<int64_t>(), 1);
}

TEST(GenerationConfig, KeepsEveryKey) {
  const TemporaryFolder folder;
  const json values = {{"_from_model_config", true}, {"bos_token_id", 1},
                       {"eos_token_id", {2, 3}},     {"temperature", 0.6},
                       {"early_stopping", "never"},  {"transformers_version", "4.0"}};
  const auto config = GenerationConfig::from_json(values);
  EXPECT_EQ(config.to_json(), values);
  EXPECT_EQ(config.options.eos_token_id->ids(), (Ids{2, 3}));
  config.save(folder.path() / "generation_config.json");
  EXPECT_EQ(GenerationConfig::load(folder.path() / "generation_config.json").to_json(), values);
}

TEST(GenerationConfig, RefusesOtherTypes) {
  EXPECT_TEXT(
      error_of([] { GenerationConfig::from_json({{"temperature", "hot"}}); }),
      "generation_config.json: temperature must be a finite number, received \"hot\" [G-GEN-1]");
  EXPECT_TEXT(error_of([] { GenerationConfig::from_json({{"top_p", std::nan("")}}); }),
              "top_p must be a finite number, received NaN");
  EXPECT_TEXT(error_of([] { GenerationConfig::from_json({{"num_beams", 2.5}}); }),
              "num_beams must be an integer, received 2.5");
  EXPECT_TEXT(error_of([] { GenerationConfig::from_json({{"early_stopping", "soon"}}); }),
              "true, false or \"never\"");
  EXPECT_TEXT(error_of([] { GenerationConfig::from_json({{"eos_token_id", "end"}}); }),
              "eos_token_id must be an integer");
}

TEST(GenerationConfig, RefusesWordsAndTokensThatLeaveNothing) {
  const auto refused = [](GenerationOptions options) {
    return error_of([&] { complete_options(std::move(options), {}); });
  };
  EXPECT_TEXT(refused({.forced_bos_token_id = 5, .suppress_tokens = Ids{4, 5}}),
              "forced_bos_token_id must be a token that suppress_tokens does not bar, received [5] "
              "[G-GEN-2]");
  EXPECT_TEXT(refused({.forced_eos_token_id = TokenIds{5, 4}, .suppress_tokens = Ids{4, 5}}),
              "forced_eos_token_id must be a token that suppress_tokens does not bar");
  EXPECT_NO_THROW(
      complete_options({.forced_eos_token_id = TokenIds{5, 6}, .suppress_tokens = Ids{4, 5}}, {}));
  EXPECT_TEXT(refused({.bad_words_ids = std::vector<Ids>{}}),
              "bad_words_ids must be a list of lists with at least one token id each, received []");
  EXPECT_TEXT(refused({.bad_words_ids = std::vector<Ids>{{3}, {}}}), "received [[3],[]]");
}

TEST(GenerationConfig, ReadsOptionsOfAnOlderConfig) {
  const auto config = GenerationConfig::from_config_file({{"model_type", "t5"},
                                                          {"max_length", 25},
                                                          {"num_beams", 2},
                                                          {"eos_token_id", 1},
                                                          {"pad_token_id", nullptr},
                                                          {"d_model", 8}});
  EXPECT_EQ(config.to_json(), (json{{"_from_model_config", true},
                                    {"max_length", 25},
                                    {"num_beams", 2},
                                    {"eos_token_id", 1}}));
}

TEST(GenerationConfig, OptionsWinOverTheFolderAndTheFolderOverDefaults) {
  GenerationOptions folder{.max_new_tokens = 50, .temperature = 0.5, .top_k = 7};
  const auto options = complete_options({.max_length = 9, .temperature = 0.8}, folder);
  EXPECT_EQ(options.temperature, 0.8);
  EXPECT_EQ(options.top_k, 7);
  EXPECT_EQ(options.max_new_tokens, std::nullopt);
  EXPECT_EQ(options.num_beams, 1);
}

}  // namespace
}  // namespace gradus
