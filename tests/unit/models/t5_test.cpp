#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/models/auto_model.h>
#include <gtest/gtest.h>

#include "../error_of.h"
#include "models/t5/t5_stack.h"
#include "temporary_folder.h"

namespace gradus {
namespace {

using nlohmann::json;

json tiny_t5(json changes = json::object()) {
  json config = {
      {"model_type", "t5"}, {"vocab_size", 20}, {"d_model", 8},   {"d_kv", 4},
      {"d_ff", 12},         {"num_layers", 1},  {"num_heads", 2}, {"decoder_start_token_id", 0}};
  config.update(changes);
  return config;
}

#define EXPECT_HOLDS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(T5, BucketsAreFineNearAndCoarseFar) {
  const auto positions = torch::tensor({-200, -20, -9, -8, -7, -1, 0, 1, 7, 8, 9, 20, 200});
  // From transformers' T5Attention._relative_position_bucket with 32 buckets and distance 128.
  EXPECT_TRUE(torch::equal(relative_position_buckets(positions, true, 32, 128),
                           torch::tensor({15, 10, 8, 8, 7, 1, 0, 17, 23, 24, 24, 26, 31})));
  EXPECT_TRUE(torch::equal(relative_position_buckets(positions, false, 32, 128),
                           torch::tensor({31, 17, 9, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0})));
}

TEST(T5, MakesTheDecodersInputFromLabels) {
  const auto model = AutoModelForSeq2SeqLM::from_config(
      tiny_t5({{"pad_token_id", 7}, {"decoder_start_token_id", 2}}));
  EXPECT_TRUE(torch::equal(
      model->prepare_decoder_input_ids_from_labels(torch::tensor({{5, 6, -100, -100}})),
      torch::tensor({{2, 5, 6, 7}})));
  auto without = tiny_t5();
  without.erase("decoder_start_token_id");
  const Batch batch = {{"input_ids", torch::tensor({{5, 6}})}, {"labels", torch::tensor({{5, 6}})}};
  EXPECT_HOLDS(error_of([&] { AutoModelForSeq2SeqLM::from_config(without)->forward(batch); }),
               "config.json has no decoder_start_token_id [G-MODEL-30]");
  EXPECT_HOLDS(error_of([&] { model->forward({{"input_ids", torch::tensor({{5, 6}})}}); }),
               "takes either decoder_input_ids or decoder_inputs_embeds; the batch holds neither");
}

// In transformers 5 the noise is added to what `shared` gives, which neither stack asks.
TEST(T5, HasNoEmbeddingNoiseAsInPython) {
  const auto model = AutoModelForSeq2SeqLM::from_config(tiny_t5({{"dropout_rate", 0.0}}));
  const auto ids = torch::tensor({{5, 6, 7}});
  const Batch batch = {{"input_ids", ids}, {"labels", ids}};
  model->train();
  const auto before = model->forward(batch).loss().item<double>();
  model->set_embedding_noise(50.0);
  EXPECT_EQ(model->forward(batch).loss().item<double>(), before);
  // A resize puts `shared` itself into both stacks.
  model->resize_token_embeddings(model->input_embedding_module()->parameters()[0].size(0) + 1);
  const auto resized = model->forward(batch).loss().item<double>();
  model->set_embedding_noise(50.0);
  EXPECT_NE(model->forward(batch).loss().item<double>(), resized);
  model->set_embedding_noise(std::nullopt);
  EXPECT_EQ(model->forward(batch).loss().item<double>(), resized);
}

TEST(T5, EncodersHaveEmbeddingNoiseAfterAResize) {
  const auto model = AutoModelForTokenClassification::from_config(
      tiny_t5({{"dropout_rate", 0.0}, {"classifier_dropout", 0.0}}));
  const Batch batch = {{"input_ids", torch::tensor({{5, 6, 7}})},
                       {"labels", torch::tensor({{0, 1, 0}})}};
  model->train();
  const auto loss = [&] { return model->forward(batch).loss().item<double>(); };
  const auto before = loss();
  model->set_embedding_noise(50.0);
  EXPECT_EQ(loss(), before);
  model->resize_token_embeddings(21);
  EXPECT_NE(loss(), before);
  model->set_embedding_noise(std::nullopt);
  EXPECT_EQ(loss(), before);
}

TEST(T5, RefusesBadConfigs) {
  const auto with = [](json changes) {
    return error_of([&] { AutoModelForSeq2SeqLM::from_config(tiny_t5(changes)); });
  };
  EXPECT_HOLDS(with({{"feed_forward_proj", "split-relu"}}),
               "feed_forward_proj must be an activation or gated- and an activation");
  EXPECT_HOLDS(with({{"feed_forward_proj", "gated-gelu-new"}}), "feed_forward_proj must be");
  EXPECT_HOLDS(with({{"relative_attention_num_buckets", 2}}),
               "relative_attention_num_buckets must be an integer from 4");
  EXPECT_HOLDS(with({{"relative_attention_max_distance", 16}}),
               "relative_attention_max_distance must be more than half of "
               "relative_attention_num_buckets (32), received 16");
  EXPECT_HOLDS(with({{"dropout_rate", 2}}), "dropout_rate");
  EXPECT_HOLDS(
      error_of([] { AutoModelForQuestionAnswering::from_config(tiny_t5({{"num_labels", 3}})); }),
      "num_labels must be 2");
}

TEST(T5, ClassifiesAtTheEndToken) {
  const auto model = AutoModelForSequenceClassification::from_config(tiny_t5({{"num_labels", 3}}));
  EXPECT_EQ(model->forward({{"input_ids", torch::tensor({{5, 6, 1}, {4, 1, 0}})}}).logits().sizes(),
            (std::vector<int64_t>{2, 3}));
  EXPECT_HOLDS(
      error_of([&] { model->forward({{"input_ids", torch::tensor({{5, 6, 1}, {4, 5, 6}})}}); }),
      "the same number of end tokens (id 1) in every row, at least one; the batch has from 0 to 1 "
      "[G-MODEL-31]");
}

TEST(T5, HeadIsTiedUnlessTheFileHoldsAnother) {
  const auto model = AutoModelForSeq2SeqLM::from_config(tiny_t5({{"tie_word_embeddings", false}}));
  EXPECT_FALSE(model->state_dict().contains("lm_head.weight"));
  const TemporaryFolder folder;
  model->save_pretrained(folder.path());
  const auto tied = AutoModelForSeq2SeqLM::from_pretrained(folder.path());
  tied->resize_token_embeddings(22);
  EXPECT_EQ(tied->state_dict()["shared.weight"].size(0), 22);
  EXPECT_EQ(
      tied->forward({{"input_ids", torch::tensor({{5, 21}})}, {"labels", torch::tensor({{21}})}})
          .logits()
          .size(-1),
      22);
}

TEST(T5, GivesHiddenStatesAndAttentions) {
  const auto model =
      AutoModelForSeq2SeqLM::from_config(tiny_t5({{"num_layers", 2}, {"num_decoder_layers", 1}}));
  model->eval();
  const Batch batch = {{"input_ids", torch::tensor({{5, 6, 7}, {8, 0, 0}})},
                       {"attention_mask", torch::tensor({{1, 1, 1}, {1, 0, 0}})},
                       {"decoder_input_ids", torch::tensor({{0, 9}, {0, 4}})}};
  ForwardOptions all;
  all.output_hidden_states = all.output_attentions = true;
  const auto plain = model->forward(batch), output = model->forward(batch, all);
  EXPECT_TRUE(torch::allclose(output.logits(), plain.logits(), 1e-5, 1e-6));
  EXPECT_EQ(plain.names(), (std::vector<std::string>{"logits", "encoder_last_hidden_state"}));
  EXPECT_TRUE(torch::equal(output["encoder_hidden_states.2"], output["encoder_last_hidden_state"]));
  EXPECT_TRUE(output.contains("decoder_hidden_states.1") &&
              !output.contains("decoder_hidden_states.2"));
  EXPECT_EQ(output["encoder_attentions.1"].sizes(), (std::vector<int64_t>{2, 2, 3, 3}));
  EXPECT_EQ(output["decoder_attentions.0"].index({0, 0, 0, 1}).item<float>(), 0.0f);  // not ahead
  EXPECT_EQ(output["cross_attentions.0"].index({1, 0, 0, 0}).item<float>(),
            1.0f);  // not the padding
}

TEST(T5, DropoutComesBackTheSameInCheckpoints) {
  const auto model =
      AutoModelForSeq2SeqLM::from_config(tiny_t5({{"dropout_rate", 0.4}, {"num_layers", 2}}));
  model->train();
  const Batch batch = {{"input_ids", torch::tensor({{5, 6, 7, 8}})},
                       {"labels", torch::tensor({{9, 10, 11}})}};
  const auto gradient = [&] {
    model->zero_grad();
    torch::manual_seed(5);
    model->forward(batch).loss().backward();
    return dynamic_cast<layers::Embedding&>(*model->input_embedding_module()).weight.grad().clone();
  };
  const auto plain = gradient();
  model->gradient_checkpointing_enable();
  EXPECT_TRUE(torch::allclose(gradient(), plain, 1e-5, 1e-7));
}

}  // namespace
}  // namespace gradus
