#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/models/auto_model.h>
#include <gtest/gtest.h>

#include "../error_of.h"
#include "temporary_folder.h"

namespace gradus {
namespace {

using nlohmann::json;

json tiny_bart(json changes = json::object()) {
  json config = {{"model_type", "bart"},
                 {"vocab_size", 20},
                 {"d_model", 8},
                 {"encoder_layers", 1},
                 {"decoder_layers", 2},
                 {"encoder_ffn_dim", 12},
                 {"decoder_ffn_dim", 12},
                 {"encoder_attention_heads", 2},
                 {"decoder_attention_heads", 2},
                 {"max_position_embeddings", 10}};
  config.update(changes);
  return config;
}

json tiny_mbart() {
  return tiny_bart({{"model_type", "mbart"}, {"decoder_start_token_id", nullptr}});
}

#define EXPECT_HOLDS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Bart, MakesTheDecodersInputFromLabels) {
  const auto labels = torch::tensor({{5, 6, 2, -100}, {7, 2, -100, -100}});
  EXPECT_TRUE(torch::equal(AutoModelForSeq2SeqLM::from_config(tiny_bart())
                               ->prepare_decoder_input_ids_from_labels(labels),
                           torch::tensor({{2, 5, 6, 2}, {2, 7, 2, 1}})));
  // mBART: the last token, which is the code of the language, comes to the front.
  const auto coded = torch::tensor({{5, 2, 19, -100}, {2, 18, -100, -100}});
  EXPECT_TRUE(torch::equal(AutoModelForSeq2SeqLM::from_config(tiny_mbart())
                               ->prepare_decoder_input_ids_from_labels(coded),
                           torch::tensor({{19, 5, 2, 19}, {18, 2, 18, 1}})));
}

TEST(Bart, DecoderReadsTheInputWhereNothingElseIsGiven) {
  const auto model = AutoModelForSeq2SeqLM::from_config(tiny_bart());
  model->eval();
  const auto ids = torch::tensor({{0, 5, 6, 2}});
  EXPECT_TRUE(torch::equal(
      model->forward({{"input_ids", ids}}).logits(),
      model->forward({{"input_ids", ids}, {"decoder_input_ids", torch::tensor({{2, 0, 5, 6}})}})
          .logits()));
}

TEST(Bart, EndsTextsWithTheForcedToken) {
  const auto model = AutoModelForSeq2SeqLM::from_config(tiny_bart());
  EXPECT_EQ(model->generation_config.options.forced_eos_token_id->ids(), std::vector<int64_t>{2});
  GenerationOptions options;
  options.max_length = 5;
  options.min_length = 5;
  const auto made = model->generate({{"input_ids", torch::tensor({{0, 5, 6, 2}})}}, options);
  EXPECT_EQ(made.size(1), 5);
  EXPECT_EQ(made[0][0].item<int64_t>(), 2);  // the start token
  EXPECT_EQ(made[0][4].item<int64_t>(), 2);
}

TEST(Bart, FoldersWithoutGenerationConfigHaveTheArchitecturesDefaults) {
  const TemporaryFolder folder;
  AutoModelForSeq2SeqLM::from_config(tiny_bart({{"num_beams", 3}}))->save_pretrained(folder.path());
  std::filesystem::remove(folder.path() / "generation_config.json");
  const auto options =
      AutoModelForSeq2SeqLM::from_pretrained(folder.path())->generation_config.options;
  EXPECT_EQ(options.num_beams, 3);
  EXPECT_EQ(options.forced_eos_token_id->ids(), std::vector<int64_t>{2});
  EXPECT_EQ(options.decoder_start_token_id->ids(), std::vector<int64_t>{2});
}

TEST(Bart, ResizesTheBiasOfTheLogitsToo) {
  const auto model = AutoModelForSeq2SeqLM::from_config(tiny_bart());
  model->resize_token_embeddings(23);
  const auto state = model->state_dict();
  EXPECT_EQ(state["final_logits_bias"].sizes(), (std::vector<int64_t>{1, 23}));
  EXPECT_EQ(state["model.shared.weight"].size(0), 23);
  EXPECT_EQ(model->forward({{"input_ids", torch::tensor({{22, 2}})}}).logits().size(-1), 23);
  const auto untied =
      AutoModelForSeq2SeqLM::from_config(tiny_bart({{"tie_word_embeddings", false}}));
  untied->resize_token_embeddings(18);
  for (const auto* name : {"model.shared.weight", "model.encoder.embed_tokens.weight",
                           "model.decoder.embed_tokens.weight", "lm_head.weight"})
    EXPECT_EQ(untied->state_dict()[name].size(0), 18) << name;
}

TEST(Bart, NamesPositionsThatItLacks) {
  const auto model = AutoModelForSeq2SeqLM::from_config(tiny_bart());
  EXPECT_HOLDS(
      error_of([&] { model->forward({{"input_ids", torch::full({1, 11}, 5, torch::kLong)}}); }),
      "position_ids holds 12, but the model's table has 12 rows");
}

TEST(Bart, LeavesOutBlocksInTrainingOnly) {
  const auto model =
      AutoModelForSeq2SeqLM::from_config(tiny_bart({{"decoder_layerdrop", 1.0}, {"dropout", 0.0}}));
  const auto plain = AutoModelForSeq2SeqLM::from_config(tiny_bart({{"dropout", 0.0}}));
  plain->load_state_dict(model->state_dict());
  EXPECT_FALSE(model->is_recordable());
  EXPECT_TRUE(plain->is_recordable());
  const Batch batch = {{"input_ids", torch::tensor({{0, 5, 6, 2}})}};
  plain->train();
  model->train();
  EXPECT_FALSE(torch::allclose(model->forward(batch).logits(), plain->forward(batch).logits()));
  model->eval();
  EXPECT_TRUE(torch::allclose(model->forward(batch).logits(), plain->forward(batch).logits()));
}

TEST(Bart, QuestionAnsweringHasTwoLabelsWhateverTheConfigSays) {
  const auto model = AutoModelForQuestionAnswering::from_config(tiny_bart({{"num_labels", 5}}));
  EXPECT_EQ(model->config()["id2label"].size(), 2U);
  EXPECT_EQ(
      AutoModelForSequenceClassification::from_config(tiny_bart())->config()["id2label"].size(),
      3U);
}

TEST(Bart, RefusesBadConfigs) {
  const auto with = [](json changes) {
    return error_of([&] { AutoModelForSeq2SeqLM::from_config(tiny_bart(changes)); });
  };
  EXPECT_HOLDS(with({{"decoder_attention_heads", 3}}),
               "d_model must be a multiple of decoder_attention_heads (3), received 8");
  EXPECT_HOLDS(with({{"encoder_layerdrop", 2}}), "encoder_layerdrop");
  EXPECT_HOLDS(with({{"activation_function", "step"}}), "step");
}

TEST(Bart, GivesHiddenStatesAndAttentions) {
  const auto model = AutoModelForSeq2SeqLM::from_config(tiny_mbart());
  model->eval();
  const Batch batch = {{"input_ids", torch::tensor({{5, 6, 2}, {8, 2, 1}})},
                       {"attention_mask", torch::tensor({{1, 1, 1}, {1, 1, 0}})},
                       {"decoder_input_ids", torch::tensor({{9, 5}, {9, 4}})}};
  ForwardOptions all;
  all.output_hidden_states = all.output_attentions = true;
  const auto plain = model->forward(batch), output = model->forward(batch, all);
  EXPECT_TRUE(torch::allclose(output.logits(), plain.logits(), 1e-5, 1e-6));
  EXPECT_TRUE(torch::equal(output["encoder_hidden_states.1"], output["encoder_last_hidden_state"]));
  EXPECT_TRUE(output.contains("decoder_hidden_states.2"));
  EXPECT_EQ(output["cross_attentions.1"].sizes(), (std::vector<int64_t>{2, 2, 2, 3}));
  EXPECT_EQ(output["cross_attentions.0"].index({1, 0, 0, 2}).item<float>(), 0.0f);  // padding
}

}  // namespace
}  // namespace gradus
