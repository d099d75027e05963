// Masks that are all ones: the batch knows, the model leaves them out, the user still sees them.
#include <gradus/models/auto_model.h>
#include <gradus/models/model.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <nlohmann/json.hpp>

namespace gradus {
namespace {

using nlohmann::json;

std::shared_ptr<PreTrainedModel> tiny(const std::string& type, ModelTask task) {
  json config = {
      {"model_type", type},           {"vocab_size", 20},         {"hidden_size", 8},
      {"num_hidden_layers", 1},       {"num_attention_heads", 2}, {"intermediate_size", 16},
      {"max_position_embeddings", 16}};
  if (type == "gpt2")
    config = {{"model_type", "gpt2"}, {"vocab_size", 20}, {"n_embd", 8},
              {"n_layer", 1},         {"n_head", 2},      {"n_positions", 16}};
  if (type == "t5")
    config = {{"model_type", "t5"}, {"vocab_size", 20},  {"d_model", 8},
              {"d_kv", 4},          {"num_heads", 2},    {"num_layers", 1},
              {"d_ff", 16},         {"pad_token_id", 0}, {"decoder_start_token_id", 0}};
  torch::manual_seed(1);
  auto model = model_from_config(task, config);
  model->eval();
  return model;
}

/// Five tokens of which the mask hides two: a model that reads the mask gives other numbers.
Batch half_masked() {
  const auto mask = torch::ones({2, 5}, torch::kLong);
  mask.narrow(1, 3, 2).zero_();
  return {{"input_ids", torch::arange(10).view({2, 5})}, {"attention_mask", mask}};
}

Batch without_mask(Batch batch) {
  batch.pop("attention_mask");
  return batch;
}

TEST(BatchNotes, EndWhenTheEntryIsReplacedOrWrittenTo) {
  Batch batch{{"mask", torch::ones({2, 3})}, {"other", torch::ones({2})}};
  EXPECT_FALSE(batch.known_all_ones("mask"));
  batch.remember_all_ones("mask");
  EXPECT_TRUE(batch.known_all_ones("mask"));
  EXPECT_FALSE(batch.known_all_ones("other"));
  EXPECT_FALSE(batch.known_all_ones("absent"));

  auto replaced = batch;
  EXPECT_TRUE(replaced.known_all_ones("mask"));
  replaced.set("mask", torch::ones({2, 3}));
  EXPECT_FALSE(replaced.known_all_ones("mask"));
  EXPECT_TRUE(batch.known_all_ones("mask"));

  batch["mask"].select(0, 0).zero_();
  EXPECT_FALSE(batch.known_all_ones("mask"));
}

TEST(BatchNotes, GoAlongWithCopies) {
  Batch batch{{"mask", torch::ones({2, 3})}, {"ids", torch::zeros({2, 3})}};
  batch.remember_all_ones("mask");
  const auto moved = batch.to(torch::kMeta);
  EXPECT_TRUE(moved["mask"].is_meta());
  EXPECT_TRUE(moved.known_all_ones("mask"));
  EXPECT_FALSE(moved.known_all_ones("ids"));
  auto clones = batch.tensors();
  for (auto& tensor : clones) tensor = tensor.clone();
  EXPECT_TRUE(batch.with_copies(clones).known_all_ones("mask"));
  batch["mask"].zero_();
  EXPECT_FALSE(batch.with_copies(clones).known_all_ones("mask"));
}

TEST(FullMasks, AreNotedForMasksOfTheModelOnly) {
  const auto model = tiny("gpt2", ModelTask::causal_lm);
  Batch batch{{"input_ids", torch::ones({2, 5}, torch::kLong)},
              {"attention_mask", torch::ones({2, 5}, torch::kLong)}};
  remember_full_masks(*model, batch);
  EXPECT_TRUE(batch.known_all_ones("attention_mask"));
  EXPECT_FALSE(batch.known_all_ones("input_ids"));
  EXPECT_TRUE(batch.contains("attention_mask"));

  auto padded = half_masked();
  remember_full_masks(*model, padded);
  EXPECT_FALSE(padded.known_all_ones("attention_mask"));

  Batch ready{{"attention_mask", torch::ones({2, 1, 5, 5})}};
  remember_full_masks(*model, ready);
  EXPECT_FALSE(ready.known_all_ones("attention_mask"));

  const auto own =
      make_model(torch::nn::Linear(1, 1), [](auto&, const Batch&) { return ModelOutput(); });
  Batch for_own{{"attention_mask", torch::ones({2, 5})}};
  remember_full_masks(*own, for_own);
  EXPECT_FALSE(for_own.known_all_ones("attention_mask"));
}

class NotedMask : public testing::TestWithParam<const char*> {};

// A note that is not true shows that the model trusts it without reading the mask.
TEST_P(NotedMask, IsLeftOutByForward) {
  const auto model = tiny(GetParam(), ModelTask::base);
  auto batch = half_masked();
  if (model->is_encoder_decoder())
    batch.set("decoder_input_ids", torch::ones({2, 3}, torch::kLong));
  const auto run = [&](const Batch& inputs) {
    const torch::NoGradGuard no_grad;
    return model->forward(inputs)["last_hidden_state"];
  };
  const auto masked = run(batch), open = run(without_mask(batch));
  ASSERT_FALSE(masked.equal(open));
  batch.remember_all_ones("attention_mask");
  EXPECT_TRUE(run(batch).equal(open));
  batch["attention_mask"].mul_(1);  // written to: nobody knows any more
  EXPECT_TRUE(run(batch).equal(masked));
}

INSTANTIATE_TEST_SUITE_P(Models, NotedMask,
                         testing::Values("gpt2", "llama", "bert", "distilbert", "t5"));

TEST(FullMasks, DoNotMakePackedRowsOfRestartingPositions) {
  const auto model = tiny("llama", ModelTask::base);
  Batch batch{{"input_ids", torch::arange(5).unsqueeze(0)},
              {"attention_mask", torch::ones({1, 5}, torch::kLong)},
              {"position_ids", torch::tensor({0, 1, 2, 0, 1}).unsqueeze(0)}};
  const torch::NoGradGuard no_grad;
  const auto before = model->forward(batch)["last_hidden_state"];
  batch.remember_all_ones("attention_mask");
  EXPECT_TRUE(model->forward(batch)["last_hidden_state"].equal(before));
}

TEST(AttentionShape, IsWhatTheModelSaysOfItself) {
  const Batch batch{{"input_ids", torch::ones({3, 7}, torch::kLong)}};
  const auto gpt2 = tiny("gpt2", ModelTask::sequence_classification)->attention_shape(batch);
  ASSERT_TRUE(gpt2);
  EXPECT_EQ(gpt2->batch, 3);
  EXPECT_EQ(gpt2->tokens, 7);
  EXPECT_EQ(gpt2->heads, 2);
  EXPECT_EQ(gpt2->key_heads, 2);
  EXPECT_EQ(gpt2->width, 4);
  EXPECT_EQ(gpt2->dropout, 0.1);
  EXPECT_TRUE(gpt2->causal);

  const auto bert = tiny("bert", ModelTask::masked_lm)->attention_shape(batch);
  ASSERT_TRUE(bert);
  EXPECT_FALSE(bert->causal);
  EXPECT_EQ(bert->width, 4);

  const json config = {{"model_type", "llama"},    {"vocab_size", 20},
                       {"hidden_size", 8},         {"intermediate_size", 8},
                       {"num_hidden_layers", 1},   {"num_attention_heads", 4},
                       {"num_key_value_heads", 2}, {"head_dim", 6}};
  const auto llama = model_from_config(ModelTask::causal_lm, config)->attention_shape(batch);
  ASSERT_TRUE(llama);
  EXPECT_EQ(llama->heads, 4);
  EXPECT_EQ(llama->key_heads, 2);
  EXPECT_EQ(llama->width, 6);

  EXPECT_FALSE(tiny("t5", ModelTask::seq2seq_lm)->attention_shape(batch));
  EXPECT_FALSE(tiny("gpt2", ModelTask::causal_lm)->attention_shape(Batch{}));
}

}  // namespace
}  // namespace gradus
