// What SFTTrainer refuses, and how it evaluates; tests/differential/sft_test.py compares its
// numbers with trl.
#include <fmt/format.h>
#include <gradus/models/auto_model.h>
#include <gradus/text/tokenizer.h>
#include <gradus/trainers/sft.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "../../silent_log.h"
#include "../error_of.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

class Sft : public ::testing::Test {
 protected:
  Sft() : folder_(fs::temp_directory_path() / fmt::format("gradus-sft-{}", ::getpid())) {
    set_log_sink(std::make_shared<testing::SilentLog>());
    fs::create_directories(folder_);
    std::ofstream(folder_ / "words.txt") << "the cat may go or sleep all day\n";
    tokenizer_ = Tokenizer::train_bpe({folder_ / "words.txt"}, {.vocab_size = 280});
    tokenizer_->set_chat_template(
        "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}");
  }
  ~Sft() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    set_log_sink(nullptr);
  }

  static std::shared_ptr<Dataset> rows() {
    return from_examples(
        {{{"text", "the cat may go"}}, {{"text", "all day"}}, {{"text", "or sleep all day"}}});
  }
  SFTTrainerOptions options() const {
    SFTTrainerOptions options;
    options.model =
        AutoModelForCausalLM::from_config({{"model_type", "llama"},
                                           {"vocab_size", tokenizer_->full_vocab_size()},
                                           {"hidden_size", 8},
                                           {"intermediate_size", 8},
                                           {"num_hidden_layers", 1},
                                           {"num_attention_heads", 1}});
    options.args.output_dir = (folder_ / "run").string();
    options.args.bf16 = false;
    options.args.save_strategy = "no";
    options.args.disable_tqdm = true;
    options.args.report_to = {"none"};
    options.train_dataset = rows();
    options.processing_class = tokenizer_;
    return options;
  }
  void refuses(const std::vector<Example>& rows, const std::vector<std::string>& parts) const {
    auto given = options();
    given.train_dataset = from_examples(rows);
    expect_error([&] { SFTTrainer trainer(given); }, "G-TRL-2", parts);
  }

  fs::path folder_;
  std::shared_ptr<Tokenizer> tokenizer_;
};

TEST_F(Sft, EvaluatesRowsThatAreGivenLater) {
  auto given = options();
  given.eval_dataset = EvalDatasets(DatasetRef(rows()));
  SFTTrainer trainer(given);
  const auto own = trainer.evaluate();
  EXPECT_EQ(trainer.evaluate(rows()).at("eval_loss"), own.at("eval_loss"));
  const auto one = from_examples({{{"text", "go or sleep"}}});
  const auto named = trainer.evaluate({{"a", one}, {"b", rows()}});
  EXPECT_EQ(named.at("eval_b_loss"), own.at("eval_loss"));
  EXPECT_EQ(named.at("eval_entropy"), own.at("eval_entropy")) << "that of the last set, as in trl";
}

TEST_F(Sft, OwnRowsArePackedOnce) {
  auto given = options();
  given.args.packing = true;
  given.args.max_length = 40;
  given.eval_dataset = EvalDatasets{{"a", rows()}};
  SFTTrainer trainer(given);
  const auto own = trainer.evaluate();
  EXPECT_EQ(trainer.evaluate(rows()).at("eval_loss"), own.at("eval_a_loss"));
}

TEST_F(Sft, PackingNeedsALength) {
  for (const bool of_evaluation : {false, true}) {
    auto given = options();
    (of_evaluation ? given.args.eval_packing.emplace() : given.args.packing) = true;
    given.args.max_length.reset();
    given.eval_dataset = EvalDatasets(DatasetRef(rows()));
    expect_error([&] { SFTTrainer trainer(given); }, "G-TRL-1",
                 {"packing needs max_length", "Set --max_length"});
  }
}

TEST_F(Sft, MasksThatNobodyReadsAreRefused) {
  auto given = options();
  given.args.dataset_kwargs = {{"skip_prepare_dataset", true}};
  given.train_dataset = from_examples({{{"input_ids", std::vector<int64_t>{5, 6, 7}},
                                        {"completion_mask", std::vector<int64_t>{0, 1, 1}}}});
  expect_error([&] { SFTTrainer trainer(given); }, "G-TRL-1",
               {"train_dataset has masks but no labels", "leave skip_prepare_dataset out"});
}

TEST_F(Sft, MessagesWithoutRolesAreRefused) {
  const auto list = ordered_json::parse(R"([{"from": "human", "value": "go"}])");
  refuses({{{"messages", Value::nested(list)}}},
          {"train_dataset, row 0", "no message of the assistant"});
}

TEST_F(Sft, ImagesAreRefused) {
  refuses({{{"text", "the cat"}, {"images", Value::nested(ordered_json::array())}}},
          {"train_dataset has a column images", "Remove the column"});
}

TEST_F(Sft, TheOldNameOfAPackingStrategyIsTaken) {
  SFTConfig args;
  args.packing_strategy = "bfd-requeue";
  EXPECT_EQ(args.resolved().packing_strategy, "bfd_split");
}

}  // namespace
}  // namespace gradus
