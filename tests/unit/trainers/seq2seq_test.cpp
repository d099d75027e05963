// Numbers: tests/differential/seq2seq_trainer_test.py. Here what needs no peer. peer-tests.md 140.
#include <gradus/core/json.h>
#include <gradus/data/collators.h>
#include <gradus/models/auto_model.h>
#include <gradus/trainers/seq2seq.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "../../silent_log.h"
#include "../error_of.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Seq2Seq : public ::testing::Test {
 protected:
  Seq2Seq() : folder_(fs::temp_directory_path() / ("gradus-seq2seq-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    set_log_sink(std::make_shared<testing::SilentLog>());
    torch::manual_seed(1);
  }
  ~Seq2Seq() override {
    set_log_sink(nullptr);
    fs::remove_all(folder_);
  }

  static std::shared_ptr<PreTrainedModel> t5() {
    return model_from_config(ModelTask::seq2seq_lm, {{"model_type", "t5"},
                                                     {"vocab_size", 20},
                                                     {"d_model", 8},
                                                     {"d_kv", 4},
                                                     {"d_ff", 12},
                                                     {"num_layers", 1},
                                                     {"num_heads", 2},
                                                     {"dropout_rate", 0.0},
                                                     {"pad_token_id", 0},
                                                     {"eos_token_id", 1},
                                                     {"decoder_start_token_id", 0}});
  }
  static std::shared_ptr<PreTrainedModel> gpt2(json extra = json::object()) {
    json config = {{"model_type", "gpt2"}, {"vocab_size", 20},  {"n_embd", 8},      {"n_layer", 1},
                   {"n_head", 2},          {"n_positions", 32}, {"eos_token_id", 1}};
    config.update(extra);
    return model_from_config(ModelTask::causal_lm, config);
  }
  static std::shared_ptr<Dataset> rows(int64_t count, bool labels = true) {
    std::vector<Example> examples;
    for (int64_t i = 0; i < count; ++i) {
      auto& example = examples.emplace_back(
          Example{{"input_ids", std::vector<int64_t>{2 + i % 7, 3, 4 + i % 5}}});
      if (labels) example.set("labels", std::vector<int64_t>{3, 2 + i % 7, 1});
    }
    return from_examples(std::move(examples));
  }
  Seq2SeqTrainerOptions options(std::shared_ptr<Model> model, Seq2SeqTrainingArguments args) const {
    args.output_dir = folder_.string();
    args.report_to = std::vector<std::string>{"none"};
    args.save_strategy = "no";
    args.disable_tqdm = true;
    args.use_cpu = true;
    return {.model = std::move(model),
            .args = std::move(args),
            .train_dataset = rows(12),
            .eval_dataset = rows(6),
            .compute_metrics = [](const EvalPrediction& p) {
              return Metrics{{"samples", double(p.predictions.size(0))},
                             {"width", double(p.predictions.size(1))}};
            }};
  }

  fs::path folder_;
};

TEST_F(Seq2Seq, EvaluatesByGeneratingWhileItTrains) {
  for (const bool bf16 : {false, true}) {
    Seq2SeqTrainer trainer(options(t5(), {.num_train_epochs = 1,
                                          .bf16 = bf16,
                                          .eval_strategy = "epoch",
                                          .per_device_eval_batch_size = 4,
                                          .predict_with_generate = true,
                                          .generation_max_length = 30}));
    trainer.train();
    const auto& log = trainer.state().log_history;
    const auto entry = std::find_if(log.begin(), log.end(),
                                    [](const auto& each) { return each.contains("eval_samples"); });
    ASSERT_NE(entry, log.end());
    EXPECT_EQ((*entry)["eval_samples"], 6);
    EXPECT_EQ((*entry)["eval_width"], 30) << "nothing this model writes ends early";
    EXPECT_TRUE(entry->contains("eval_loss"));
  }
}

TEST_F(Seq2Seq, TestReturnSequences) {
  Seq2SeqTrainer trainer(options(t5(), {.predict_with_generate = true}));
  const auto metrics = trainer.evaluate(
      {}, {}, "eval", {.max_new_tokens = 3, .num_beams = 3, .num_return_sequences = 3});
  EXPECT_EQ(metrics.at("eval_samples"), 6 * 3);
  EXPECT_EQ(metrics.at("eval_width"), 20) << "filled up to the model's max_length";
  EXPECT_EQ(trainer.evaluate().at("eval_samples"), 6) << "the options of a call are that call's";
}

TEST_F(Seq2Seq, PredictsRowsWithoutLabels) {
  Seq2SeqTrainer trainer(options(t5(), {.predict_with_generate = true, .generation_num_beams = 2}));
  const auto found = trainer.predict(rows(5, /*labels=*/false));
  EXPECT_EQ(found.predictions.size(0), 5);
  EXPECT_FALSE(found.label_ids.defined());
  EXPECT_FALSE(found.metrics.contains("test_loss"));
}

TEST_F(Seq2Seq, TakesItsGenerationConfigFromAFileAFolderOrADictionary) {
  const json values = {{"max_new_tokens", 4},
                       {"decoder_start_token_id", 0},
                       {"pad_token_id", 0},
                       {"eos_token_id", 1}};
  std::ofstream(folder_ / "generation_config.json") << values.dump();
  for (const json& given :
       {json((folder_ / "generation_config.json").string()), json(folder_.string()), values}) {
    const auto model = t5();
    Seq2SeqTrainer trainer(
        options(model, {.predict_with_generate = true, .generation_config = given}));
    EXPECT_EQ(model->generation_config.options.max_new_tokens, 4) << given;
    EXPECT_EQ(trainer.evaluate().at("eval_samples"), 6);
  }
  auto later = options(nullptr, {.predict_with_generate = true, .generation_config = values});
  later.model_init = [] { return t5(); };
  Seq2SeqTrainer trainer(std::move(later));
  EXPECT_EQ(
      dynamic_cast<PreTrainedModel&>(trainer.model()).generation_config.options.max_new_tokens, 4);
}

TEST_F(Seq2Seq, TestBadGenerationConfigFailEarly) {
  const auto expect = [&](json config, const std::string& id, const std::string& part) {
    expect_error(
        [&] {
          Seq2SeqTrainer trainer(options(
              t5(), {.predict_with_generate = true, .generation_config = std::move(config)}));
        },
        id, {part});
  };
  expect({{"do_sample", false}, {"top_p", 0.9}, {"length_penalty", 2.0}}, "G-GEN-2",
         "generation_config: options without effect: top_p (needs do_sample), length_penalty "
         "(needs num_beams above 1)");
  expect({{"num_return_sequences", 2}}, "G-GEN-2",
         "num_return_sequences must be 1 with greedy search");
  expect({{"num_beams", "many"}}, "G-GEN-1", "generation_config: num_beams must be");
  expect((folder_ / "missing.json").string(), "G-IO-1", "missing.json");
}

TEST_F(Seq2Seq, WantsAModelThatGeneratesAndAPadToken) {
  struct Own : Model {
    ModelOutput forward(const Batch&, const ForwardOptions&) override { return {}; }
  };
  EXPECT_EQ(message_of("G-TRAIN-19",
                       [&] {
                         Seq2SeqTrainer trainer(
                             options(std::make_shared<Own>(), {.predict_with_generate = true}));
                       }),
            "predict_with_generate: a model of your own cannot generate");
  Seq2SeqTrainer fine(options(std::make_shared<Own>(), {}));  // as long as it need not

  Seq2SeqTrainer unpadded(
      options(gpt2(), {.predict_with_generate = true, .generation_max_length = 8}));
  EXPECT_EQ(message_of("G-TRAIN-20", [&] { unpadded.evaluate(); }),
            "generated tokens cannot be filled up to one length: config.json names no pad token");
  Seq2SeqTrainer padded(options(gpt2({{"pad_token_id", 0}}),
                                {.predict_with_generate = true, .generation_max_length = 8}));
  EXPECT_EQ(padded.evaluate().at("eval_width"), 20);
}

TEST_F(Seq2Seq, SavesItsFiveOptionsWithTheOthers) {
  Seq2SeqTrainer trainer(options(t5(), {.predict_with_generate = true, .generation_num_beams = 2}));
  trainer.args().logging_steps = 7;
  trainer.save_model();
  const auto saved = read_json(folder_ / "training_args.json");
  EXPECT_EQ(saved["predict_with_generate"], true);
  EXPECT_EQ(saved["generation_num_beams"], 2);
  EXPECT_EQ(saved["logging_steps"], 7) << "as it is now";
  EXPECT_EQ(trainer.seq2seq_args().generation_num_beams, 2);
}

}  // namespace
}  // namespace gradus
