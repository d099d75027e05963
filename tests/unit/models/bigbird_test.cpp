// What BigBird does beyond the numbers, which parity_test.cpp compares with transformers.
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/models/auto_model.h>
#include <gtest/gtest.h>

namespace gradus {
namespace {

using nlohmann::json;

/// Attention is sparse from 15 tokens on.
json bigbird_config() {
  return {{"model_type", "big_bird"},
          {"vocab_size", 32},
          {"hidden_size", 16},
          {"intermediate_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"max_position_embeddings", 64},
          {"block_size", 2},
          {"num_random_blocks", 1},
          {"hidden_dropout_prob", 0.0},
          {"attention_probs_dropout_prob", 0.0}};
}

Batch text_of(int64_t tokens) {
  return {{"input_ids", torch::arange(tokens).remainder(28).add(4).unsqueeze(0)}};
}

torch::Tensor attentions(PreTrainedModel& model, int64_t tokens) {
  ForwardOptions options;
  options.output_attentions = true;
  return model.forward(text_of(tokens), options)["attentions.0"];
}

TEST(BigBird, AttendsToTheEndsTheNeighboursAndRandomBlocks) {
  const auto model = AutoModel::from_config(bigbird_config());
  model->train();
  const auto weights = attentions(*model, 40);
  EXPECT_TRUE(torch::allclose(weights.sum(-1), torch::ones({1, 2, 40})));
  const auto seen = weights[0][0].gt(0).view({20, 2, 20, 2}).any(3).any(1);
  for (int64_t block = 0; block < 20; ++block) {
    const bool is_end = block == 0 || block == 19;
    EXPECT_EQ(seen[block].sum().item<int64_t>(),
              is_end ? 20 : 6 - int64_t(block == 1 || block == 18))
        << block;
    const auto sees = [&](int64_t other) {
      return other < 0 || other >= 20 || seen[block][other].item<bool>();
    };
    EXPECT_TRUE(sees(0) && sees(block - 1) && sees(block) && sees(block + 1) && sees(19)) << block;
  }
}

TEST(BigBird, AShortTextMakesAttentionFullForGood) {
  const auto model = AutoModel::from_config(bigbird_config());
  EXPECT_TRUE(model->memory().is_null());
  EXPECT_GT(attentions(*model, 40).eq(0).sum().item<int64_t>(), 0);
  EXPECT_TRUE(model->memory().is_null());
  attentions(*model, 14);
  EXPECT_EQ(attentions(*model, 40).eq(0).sum().item<int64_t>(), 0);

  const auto other = AutoModel::from_config(bigbird_config());
  other->load_memory(model->memory());
  EXPECT_EQ(attentions(*other, 40).eq(0).sum().item<int64_t>(), 0);
}

TEST(BigBird, DropoutAfterTheChangeIsThatOfTransformers) {
  auto config = bigbird_config();
  config["hidden_dropout_prob"] = 0.5;
  const auto dropped = [&](const char* attention, bool draws) {
    config["attention_type"] = attention;
    torch::manual_seed(1);
    const auto model = AutoModel::from_config(config);
    model->train();
    torch::manual_seed(2);
    // set_attention_type("original_full") makes three new linear layers for each block.
    for (int64_t i = 0; draws && i < 6; ++i) {
      torch::empty({16, 16}).uniform_();
      torch::empty({16}).uniform_();
    }
    return model->forward(text_of(9))["last_hidden_state"];
  };
  EXPECT_TRUE(dropped("block_sparse", false).equal(dropped("original_full", true)));
}

TEST(BigBird, PadsTextsToWholeBlocksAndCutsThatOff) {
  const auto model = AutoModel::from_config(bigbird_config());
  EXPECT_EQ(model->forward(text_of(17))["last_hidden_state"].sizes(),
            (torch::IntArrayRef{1, 17, 16}));
}

json with(const char* key, const json& value) {
  auto config = bigbird_config();
  config[key] = value;
  return config;
}

std::string bigbird_error(const json& config, int64_t tokens = 8) {
  try {
    const auto model = AutoModel::from_config(config);
    model->train();
    model->forward(text_of(tokens));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(BigBird, RefusesWhatMakesNoModel) {
  EXPECT_NE(bigbird_error(with("attention_type", "sparse")).find("block_sparse or original_full"),
            std::string::npos);
  EXPECT_NE(bigbird_error(with("add_cross_attention", true)).find("add_cross_attention"),
            std::string::npos);
  EXPECT_NE(bigbird_error(with("hidden_size", 17)).find("a multiple of num_attention_heads"),
            std::string::npos);
  // The plan of the paper for 3072 tokens takes random blocks from the first 1024 only.
  auto config = bigbird_config();
  config["block_size"] = 256;
  config["max_position_embeddings"] = 3072;
  EXPECT_NE(bigbird_error(config, 3072).find("has only 0 to choose from"), std::string::npos);
}

/// A model for natural questions, and a batch of two rows: one with an answer, one without.
std::shared_ptr<PreTrainedModel> natural_questions_model() {
  auto config = bigbird_config();
  config["architectures"] = {"BigBirdForNaturalQuestions"};
  config["sep_token_id"] = 3;
  config["pad_token_id"] = 0;
  return AutoModelForQuestionAnswering::from_config(config);
}

Batch natural_questions_batch() {
  auto ids = torch::arange(40).remainder(28).add(4).repeat({2, 1});
  ids.select(1, 5).fill_(3);
  return {{"input_ids", ids},
          {"start_labels", torch::tensor({int64_t{9}, int64_t{-100}})},
          {"end_labels", torch::tensor({int64_t{12}, int64_t{-100}})},
          {"pooled_labels", torch::tensor({int64_t{1}, int64_t{0}})}};
}

TEST(BigBirdForNaturalQuestions, TheLossIsAMeanOverAllRowsOfThreeScores) {
  const auto model = natural_questions_model();
  const auto batch = natural_questions_batch();
  const auto output = model->forward(batch);
  EXPECT_EQ(output["pooled_logits"].sizes(), (torch::IntArrayRef{2, 5}));
  EXPECT_EQ(output["start_logits"].sizes(), (torch::IntArrayRef{2, 40}));
  EXPECT_LT(output["start_logits"][0][3].item<float>(), -1e5);  // a word of the question
  const auto cost = [&](const char* scores, int64_t row, int64_t label) {
    return -torch::log_softmax(output[scores][row], 0)[label].item<double>();
  };
  const auto wanted = (cost("start_logits", 0, 9) / 2 + cost("end_logits", 0, 12) / 2 +
                       (cost("pooled_logits", 0, 1) + cost("pooled_logits", 1, 0)) / 2) /
                      3;
  EXPECT_NEAR(output.loss().item<double>(), wanted, 1e-6);
  const Batch without{{"input_ids", batch["input_ids"]},
                      {"start_labels", batch["start_labels"]},
                      {"end_labels", batch["end_labels"]}};
  EXPECT_FALSE(model->forward(without).contains("loss"));
}

TEST(BigBirdForNaturalQuestions, TheVectorOfThePaddingTokenIsTrained) {
  const auto model = natural_questions_model();
  const auto batch = natural_questions_batch();
  batch["input_ids"].select(1, 20).fill_(0);
  model->forward(batch).loss().backward();
  const auto parameters = model->named_module().named_parameters();
  const auto& table = parameters["bert.embeddings.word_embeddings.weight"];
  EXPECT_GT(table.grad()[0].abs().max().item<float>(), 0);
}

TEST(BigBirdForNaturalQuestions, TheFolderSaysWhatItIs) {
  const auto folder = std::filesystem::temp_directory_path() / "gradus-bigbird-nq";
  std::filesystem::remove_all(folder);
  const auto model = natural_questions_model();
  model->eval();  // random blocks are drawn in training only
  model->save_pretrained(folder);
  EXPECT_EQ(model->config().at("architectures"), json::array({"BigBirdForNaturalQuestions"}));
  const auto loaded = AutoModelForQuestionAnswering::from_pretrained(folder);
  EXPECT_EQ(loaded->class_name(), "BigBirdForNaturalQuestions");
  const auto batch = natural_questions_batch();
  EXPECT_TRUE(torch::equal(loaded->forward(batch).loss(), model->forward(batch).loss()));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gradus
