#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/formats/safetensors.h>
#include <gradus/formats/torch_file.h>
#include <gradus/models/auto_model.h>
#include <gtest/gtest.h>

#include <cmath>

#include "temporary_folder.h"

namespace gradus {
namespace {

using nlohmann::json;
using torch::Tensor;

constexpr int64_t kPad = 1;

json encoder_config(const std::string& type) {
  if (type == "distilbert")
    return {{"model_type", type},
            {"vocab_size", 32},
            {"dim", 16},
            {"hidden_dim", 24},
            {"n_layers", 2},
            {"n_heads", 2},
            {"max_position_embeddings", 16},
            {"pad_token_id", kPad},
            {"dropout", 0.0},
            {"attention_dropout", 0.0},
            {"qa_dropout", 0.0},
            {"seq_classif_dropout", 0.0}};
  return {{"model_type", type},
          {"vocab_size", 32},
          {"hidden_size", 16},
          {"intermediate_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"max_position_embeddings", 16},
          {"pad_token_id", kPad},
          {"hidden_dropout_prob", 0.0},
          {"attention_probs_dropout_prob", 0.0}};
}

const char* const kEncoders[] = {"bert", "roberta", "distilbert"};

template <class F>
std::string encoder_error(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

#define EXPECT_PART(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

struct Quiet : LogSink {
  void message(LogLevel, std::string_view line) override { text += std::string(line) + "\n"; }
  void print(std::string_view) override {}
  std::string text;
};

double distance(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

PretrainedOptions strictly() {
  PretrainedOptions options;
  options.strict = true;
  return options;
}

Tensor ids_of(std::vector<int64_t> values) { return torch::tensor(values).unsqueeze(0); }

TEST(Encoders, ReadOldNames) {
  const auto model = AutoModelForMaskedLM::from_config(encoder_config("bert"));
  const TemporaryFolder folder;
  model->save_config(folder.path());
  auto state = StateTree::dict();
  for (const auto& item : model->state_dict()) {
    auto name = item.key();
    const auto at = name.find("LayerNorm.");
    if (at != std::string::npos)
      name = name.substr(0, at + 10) + (name.substr(at + 10) == "weight" ? "gamma" : "beta");
    state.set(name, item.value());
  }
  state.set("bert.embeddings.position_ids", torch::arange(16).unsqueeze(0));
  state.set("cls.predictions.decoder.weight",
            model->state_dict()["bert.embeddings.word_embeddings.weight"]);
  write_torch_file(folder.path() / "pytorch_model.bin", state);
  const auto loaded = AutoModelForMaskedLM::from_pretrained(folder.path(), strictly());
  const Batch batch{{"input_ids", ids_of({4, 5, 6})}};
  EXPECT_TRUE(torch::equal(model->forward(batch).logits(), loaded->forward(batch).logits()));
}

TEST(Encoders, LoadWithAndWithoutTheBodysName) {
  for (const auto* type : kEncoders) {
    const auto body = AutoModel::from_config(encoder_config(type));
    const TemporaryFolder folder;
    body->save_pretrained(folder.path());
    EXPECT_NE(body->state_dict().find("embeddings.word_embeddings.weight"), nullptr) << type;
    const auto sink = std::make_shared<Quiet>();
    const auto before = set_log_sink(sink);
    const auto tagger = AutoModelForTokenClassification::from_pretrained(folder.path());
    set_log_sink(before);
    EXPECT_PART(sink->text, "classifier.weight");
    EXPECT_EQ(sink->text.find("embeddings"), std::string::npos) << sink->text;
    const std::string prefix(type);
    EXPECT_TRUE(torch::equal(tagger->state_dict()[prefix + ".embeddings.word_embeddings.weight"],
                             body->state_dict()["embeddings.word_embeddings.weight"]));

    const TemporaryFolder second;  // and back: a head's file gives the body
    tagger->save_pretrained(second.path());
    set_log_sink(sink);
    const auto back = AutoModel::from_pretrained(second.path());
    set_log_sink(before);
    const Batch batch{{"input_ids", ids_of({4, 5, 6})}};
    EXPECT_TRUE(torch::equal(back->forward(batch)["last_hidden_state"],
                             body->forward(batch)["last_hidden_state"]))
        << type;
  }
}

TEST(Encoders, SaveTiedWeightsOnce) {
  const auto keys = AutoModelForMaskedLM::from_config(encoder_config("roberta"))->state_dict();
  EXPECT_NE(keys.find("lm_head.bias"), nullptr);
  EXPECT_EQ(keys.find("lm_head.decoder.weight"), nullptr);
  EXPECT_EQ(keys.find("lm_head.decoder.bias"), nullptr);
  auto config = encoder_config("roberta");
  config["tie_word_embeddings"] = false;
  const auto apart = AutoModelForMaskedLM::from_config(config)->state_dict();
  EXPECT_NE(apart.find("lm_head.decoder.weight"), nullptr);
  EXPECT_EQ(apart["lm_head.bias"].abs().sum().item<double>(), 0.0);
}

TEST(Encoders, KeepApartWhatTheFileHoldsApart) {
  auto config = encoder_config("bert");
  config["tie_word_embeddings"] = false;
  const auto apart = AutoModelForMaskedLM::from_config(config);
  {
    const torch::NoGradGuard no_grad;
    for (const auto& item : apart->named_parameters())
      if (item.key() == "cls.predictions.decoder.bias") item.value().normal_();
  }
  const TemporaryFolder folder;
  apart->save_pretrained(folder.path());
  PretrainedOptions options = strictly();
  options.config = {{"tie_word_embeddings", true}};
  const auto sink = std::make_shared<Quiet>();
  const auto before = set_log_sink(sink);
  const auto model = AutoModelForMaskedLM::from_pretrained(folder.path(), options);
  set_log_sink(before);
  EXPECT_PART(sink->text,
              "ties cls.predictions.decoder.bias to cls.predictions.bias, but the file holds "
              "different values");
  const Batch batch{{"input_ids", ids_of({4, 5, 6})}};
  EXPECT_TRUE(torch::equal(model->forward(batch).logits(), apart->forward(batch).logits()));
}

TEST(Encoders, PaddingOnTheLeftChangesNothingForRoberta) {
  auto model = AutoModel::from_config(encoder_config("roberta"));
  model->eval();
  const auto alone = model->forward({{"input_ids", ids_of({5, 6, 7})}})["last_hidden_state"];
  const auto padded =
      model->forward({{"input_ids", ids_of({kPad, kPad, 5, 6, 7})},
                      {"attention_mask", ids_of({0, 0, 1, 1, 1})}})["last_hidden_state"];
  EXPECT_LT(distance(padded.narrow(1, 2, 3), alone), 1e-5);
  const auto wrong = model->forward({{"input_ids", ids_of({kPad, kPad, 5, 6, 7})},
                                     {"attention_mask", ids_of({0, 0, 1, 1, 1})},
                                     {"position_ids", ids_of({1, 2, 3, 4, 5})}});
  EXPECT_GT(distance(wrong["last_hidden_state"].narrow(1, 2, 3), alone), 1e-3);
  const auto embeds =
      torch::randn({1, 3, 16});  // ids unknown: positions count from pad_token_id + 1
  EXPECT_LT(distance(model->forward({{"inputs_embeds", embeds}})["last_hidden_state"],
                     model->forward({{"inputs_embeds", embeds},
                                     {"position_ids", ids_of({2, 3, 4})}})["last_hidden_state"]),
            1e-6);
}

TEST(Encoders, PackedSequencesDoNotSeeEachOther) {
  for (const auto* type : kEncoders) {
    auto model = AutoModel::from_config(encoder_config(type));
    model->eval();
    const int64_t start = std::string(type) == "roberta" ? kPad + 1 : 0;
    const auto positions = ids_of({start, start + 1, start + 2, start, start + 1});
    const Batch packed{{"input_ids", ids_of({5, 6, 7, 8, 9})}, {"position_ids", positions}};
    auto by_ids = packed, by_lengths = packed;
    by_ids.set("seq_idx", ids_of({0, 0, 0, 1, 1}).to(torch::kInt));
    by_lengths.set("cu_seq_lens_q", torch::tensor({0, 3, 5}, torch::kInt));
    const auto first = model->forward({{"input_ids", ids_of({5, 6, 7})}})["last_hidden_state"],
               second = model->forward({{"input_ids", ids_of({8, 9})}})["last_hidden_state"];
    const auto alone = torch::cat({first, second}, 1);
    EXPECT_LT(distance(model->forward(by_ids)["last_hidden_state"], alone), 1e-5) << type;
    EXPECT_LT(distance(model->forward(by_lengths)["last_hidden_state"], alone), 1e-5) << type;
    EXPECT_GT(distance(model->forward(packed)["last_hidden_state"], alone), 1e-4)
        << type;  // as in transformers: positions alone separate nothing here
  }
}

TEST(Encoders, RefuseBadConfigs) {
  const auto with = [](const char* type, const char* key, json value,
                       ModelTask task = ModelTask::masked_lm) {
    auto config = encoder_config(type);
    config[key] = std::move(value);
    return encoder_error([&] { model_from_config(task, config); });
  };
  EXPECT_PART(with("bert", "num_attention_heads", 3),
              "config.json: hidden_size must be a multiple of num_attention_heads (3), received 16 "
              "[G-MODEL-5]");
  EXPECT_PART(with("bert", "is_decoder", true), "is_decoder must be false");
  EXPECT_PART(with("bert", "pad_token_id", 32),
              "pad_token_id must be an integer from -32 to 31, received 32");
  EXPECT_PART(with("bert", "hidden_act", "gelo"), "unknown activation function \"gelo\"");
  EXPECT_PART(with("bert", "layer_norm_eps", -1.0),
              "layer_norm_eps must be a finite number of at least 0");
  EXPECT_PART(with("bert", "type_vocab_size", 0), "type_vocab_size must be an integer");
  EXPECT_PART(with("roberta", "pad_token_id", nullptr),
              "pad_token_id must be a token id: RoBERTa counts positions after it, received null");
  EXPECT_EQ(with("bert", "pad_token_id", nullptr), "no error");
  EXPECT_PART(with("distilbert", "n_heads", 5),
              "dim must be a multiple of n_heads (5), received 16");
  EXPECT_PART(with("distilbert", "qa_dropout", 2.0),
              "qa_dropout must be a finite number from 0 to 1");
  for (const auto* type : kEncoders)
    EXPECT_PART(with(type, "num_labels", 3, ModelTask::question_answering),
                "num_labels must be 2 for question answering");
  EXPECT_PART(with("bert", "num_labels", 2, ModelTask::causal_lm),
              "model_type \"bert\" has no head for causal language modeling");
}

TEST(Encoders, SayWhatTheyCannotTake) {
  const auto model = AutoModelForMaskedLM::from_config(encoder_config("bert"));
  const auto zeros = [](int64_t rows, int64_t tokens) {
    return torch::zeros({rows, tokens}, torch::kLong);
  };
  EXPECT_PART(encoder_error([&] { model->forward({{"input_ids", zeros(1, 17)}}); }),
              "position_ids holds 16, but the model's table has 16 rows (0 to 15) [G-MODEL-9]");
  EXPECT_PART(encoder_error([&] {
                model->forward({{"input_ids", zeros(1, 3)}, {"token_type_ids", ids_of({0, 1, 2})}});
              }),
              "token_type_ids holds 2");
  ForwardOptions without;
  without.need_logits = false;
  for (const auto& options : {ForwardOptions(), without}) {
    EXPECT_PART(encoder_error([&] {
                  model->forward({{"input_ids", zeros(1, 4)}, {"labels", zeros(1, 3)}}, options);
                }),
                "labels have shape [1, 3]");
    EXPECT_PART(encoder_error([&] {
                  model->forward({{"input_ids", zeros(1, 2)}, {"labels", ids_of({-100, 40})}},
                                 options);
                }),
                "labels hold 40, but the model has 32 classes");
  }
  const auto roberta = AutoModel::from_config(encoder_config("roberta"));
  EXPECT_PART(encoder_error([&] { roberta->forward({{"input_ids", zeros(1, 15)}}); }),
              "position_ids holds 16");
  EXPECT_NO_THROW(roberta->forward({{"input_ids", zeros(1, 14)}}));
}

TEST(Encoders, ClassifyWithTheFirstTokenAlone) {
  for (const auto* type : kEncoders) {
    const auto model = AutoModelForSequenceClassification::from_config(encoder_config(type));
    Batch batch{{"input_ids", torch::tensor({{4, 5, 6}, {7, 8, 1}})},
                {"attention_mask", torch::tensor({{1, 1, 1}, {1, 1, 0}})}};
    ForwardOptions whole;
    whole.output_hidden_states = true;  // needs every token of the last block
    const auto output = model->forward(batch, whole);
    EXPECT_EQ(output["hidden_states.2"].size(1), 3);
    EXPECT_LT(distance(model->forward(batch).logits(), output.logits()), 1e-6) << type;
    batch.set("attention_mask", torch::zeros({2, 1, 3, 3})
                                    .masked_fill(torch::ones({3, 3}).triu(1).to(torch::kBool),
                                                 -1e9));  // a mask of one's own: looks back only
    EXPECT_LT(distance(model->forward(batch).logits(), model->forward(batch, whole).logits()), 1e-6)
        << type;
  }
}

TEST(Encoders, TheFirstLabelsDecideTheProblem) {
  const auto model = AutoModelForSequenceClassification::from_config(encoder_config("bert"));
  const auto ids = torch::tensor({{4, 5}, {6, 7}});
  EXPECT_FALSE(model->config().contains("problem_type"));
  model->forward({{"input_ids", ids}, {"labels", torch::tensor({{0.0, 1.0}, {1.0, 1.0}})}});
  EXPECT_EQ(model->config()["problem_type"], "multi_label_classification");
  auto config = encoder_config("distilbert");
  config["problem_type"] = "ranking";
  EXPECT_PART(encoder_error([&] { AutoModelForSequenceClassification::from_config(config); }),
              "problem_type must be regression, single_label_classification or "
              "multi_label_classification, received \"ranking\"");
  config["problem_type"] = "single_label_classification";
  config["num_labels"] = 1;
  EXPECT_PART(encoder_error([&] { AutoModelForSequenceClassification::from_config(config); }),
              "num_labels must be more than 1 for single_label_classification");
}

TEST(MaskedLM, MakesNoLogitsWhereNoneAreNeeded) {
  const auto model = AutoModelForMaskedLM::from_config(encoder_config("bert"));
  const Batch batch{{"input_ids", ids_of({4, 5, 6, 7})}, {"labels", ids_of({-100, 9, -100, 10})}};
  ForwardOptions options;
  options.need_logits = false;
  EXPECT_EQ(model->forward(batch, options).names(), std::vector<std::string>{"loss"});
  options.num_items_in_batch =
      torch::tensor(100);  // transformers' encoders take it and do not use it
  EXPECT_NEAR(model->forward(batch, options).loss().item<double>(),
              model->forward(batch).loss().item<double>(), 1e-6);
  const Batch nothing{{"input_ids", ids_of({4, 5})}, {"labels", ids_of({-100, -100})}};
  EXPECT_TRUE(std::isnan(model->forward(nothing, options).loss().item<double>()));
  EXPECT_TRUE(std::isnan(model->forward(nothing).loss().item<double>()));
}

TEST(MaskedLM, ResizesTheVocabulary) {
  for (const auto* type : kEncoders)
    for (const bool tied : {true, false}) {
      auto config = encoder_config(type);
      config["tie_word_embeddings"] = tied;
      const auto model = AutoModelForMaskedLM::from_config(config);
      model->resize_token_embeddings(37);
      EXPECT_EQ(model->forward({{"input_ids", ids_of({36, 4})}}).logits().size(-1), 37)
          << type << tied;
      const TemporaryFolder folder;
      model->save_pretrained(folder.path());
      EXPECT_NO_THROW(AutoModelForMaskedLM::from_pretrained(folder.path(), strictly()))
          << type << tied;
    }
}

TEST(Encoders, InitialiseLikeThePeer) {
  torch::manual_seed(0);
  auto config = encoder_config("bert");
  config["hidden_size"] = 256;
  config["vocab_size"] = 400;
  config["initializer_range"] = 0.05;
  const auto state = AutoModelForMaskedLM::from_config(config)->state_dict();
  EXPECT_NEAR(state["bert.embeddings.word_embeddings.weight"].std().item<double>(), 0.05, 0.001);
  EXPECT_NEAR(state["bert.encoder.layer.1.output.dense.weight"].std().item<double>(), 0.05, 0.002);
  EXPECT_EQ(state["bert.embeddings.word_embeddings.weight"][kPad].abs().sum().item<double>(), 0.0);
  EXPECT_EQ(state["cls.predictions.bias"].abs().sum().item<double>(), 0.0);
  EXPECT_EQ(state["bert.encoder.layer.0.attention.output.LayerNorm.weight"].sum().item<double>(),
            256.0);
  auto waves = encoder_config("distilbert");
  waves["sinusoidal_pos_embds"] = true;
  const auto table =
      AutoModel::from_config(waves)->state_dict()["embeddings.position_embeddings.weight"];
  EXPECT_NEAR(table[3][4].item<double>(), std::sin(3.0 / std::pow(10000.0, 4.0 / 16.0)), 1e-6);
  EXPECT_NEAR(table[3][5].item<double>(), std::cos(3.0 / std::pow(10000.0, 4.0 / 16.0)), 1e-6);
}

TEST(Encoders, DropWhatTheConfigSays) {
  const std::vector<std::tuple<const char*, const char*, ModelTask>> settings = {
      {"bert", "hidden_dropout_prob", ModelTask::base},
      {"bert", "attention_probs_dropout_prob", ModelTask::base},
      {"bert", "classifier_dropout", ModelTask::sequence_classification},
      {"bert", "classifier_dropout", ModelTask::token_classification},
      {"roberta", "classifier_dropout", ModelTask::sequence_classification},
      {"distilbert", "dropout", ModelTask::base},
      {"distilbert", "attention_dropout", ModelTask::base},
      {"distilbert", "qa_dropout", ModelTask::question_answering},
      {"distilbert", "seq_classif_dropout", ModelTask::sequence_classification}};
  const Batch batch{{"input_ids", ids_of({4, 5, 6, 7})}};
  for (const auto& [type, key, task] : settings) {
    auto config = encoder_config(type);
    config[key] = 0.5;
    const auto model = model_from_config(task, config);
    model->train();
    EXPECT_GT(distance(model->forward(batch)[0], model->forward(batch)[0]), 0.0)
        << type << " " << key;
    model->eval();
    EXPECT_EQ(distance(model->forward(batch)[0], model->forward(batch)[0]), 0.0)
        << type << " " << key;
  }
}

TEST(Encoders, TellTheTrainerWhatTransformersTells) {
  const auto model = AutoModelForSequenceClassification::from_config(encoder_config("bert"));
  EXPECT_EQ(model->input_names(),
            (std::vector<std::string>{"input_ids", "attention_mask", "token_type_ids",
                                      "position_ids", "inputs_embeds", "labels"}));
  EXPECT_TRUE(model->accepts_loss_kwargs());
  EXPECT_FALSE(model->counts_shifted_labels());
  const auto names =
      AutoModelForQuestionAnswering::from_config(encoder_config("distilbert"))->input_names();
  EXPECT_EQ(names, (std::vector<std::string>{"input_ids", "attention_mask", "inputs_embeds",
                                             "position_ids", "start_positions", "end_positions"}));
  ForwardOptions options;
  options.output_hidden_states = options.output_attentions = true;
  const auto output = AutoModel::from_config(encoder_config("roberta"))
                          ->forward({{"input_ids", ids_of({4, 5, 6})}}, options);
  EXPECT_EQ(output["hidden_states.2"].sizes(), (torch::IntArrayRef{1, 3, 16}));
  EXPECT_EQ(output["attentions.1"].sizes(), (torch::IntArrayRef{1, 2, 3, 3}));
  EXPECT_EQ(output["pooler_output"].sizes(), (torch::IntArrayRef{1, 16}));
}

}  // namespace
}  // namespace gradus
