// Arguments of trainers, and the table of trainers.
#include <gradus/config/parse_args.h>
#include <gradus/trainers/registry.h>
#include <gradus/trainers/seq2seq.h>
#include <gradus/trainers/sft.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "../../silent_log.h"
#include "../error_of.h"

namespace gradus {
namespace {

TEST(Seq2SeqTrainingArguments, TakesTheSameFieldsAndConverts) {
  const Seq2SeqTrainingArguments args{.output_dir = "x",
                                      .max_steps = 3,
                                      .num_threads = 2,
                                      .predict_with_generate = true,
                                      .generation_num_beams = 4};
  const TrainingArguments plain = args;
  EXPECT_EQ(plain.output_dir, "x");
  EXPECT_EQ(plain.max_steps, 3);
  EXPECT_EQ(plain.num_threads, 2);
  EXPECT_EQ(args.to_dict().size(), plain.to_dict().size() + 5);
  EXPECT_EQ(Seq2SeqTrainingArguments::from_json(args.to_dict()), args);
  EXPECT_EQ(args.resolved().report_to, StringOrList(std::vector<std::string>{}));
  EXPECT_TRUE(args.resolved().predict_with_generate);
  EXPECT_EQ(
      id_and_message_of([] { Seq2SeqTrainingArguments{.generation_num_beams = 0}.resolved(); }),
      "G-CONF-3 generation_num_beams: must be at least 1, received 0");
}

TEST(Seq2SeqTrainingArguments, ComeFromACommandLine) {
  const char* argv[] = {"program", "--max_steps", "5", "--generation_max_length", "7"};
  const auto args = parse_args<Seq2SeqTrainingArguments>(5, argv, {.learning_rate = 1e-3});
  EXPECT_EQ(args.max_steps, 5);
  EXPECT_EQ(args.generation_max_length, 7);
  EXPECT_EQ(args.learning_rate, 1e-3);
}

TEST(SftConfig, TakesTheWordsThatTrlTakes) {
  const auto args =
      SFTConfig::from_json({{"pad_to_multiple_of", "auto"}, {"eos_token", "<|im_end|>"}});
  EXPECT_EQ(args.pad_to_multiple_of, std::nullopt);
  EXPECT_EQ(args.eos_token, "<|im_end|>");
  EXPECT_EQ(SFTConfig::from_json(args.to_dict()).eos_token, std::nullopt) << "a hidden one";
  const char* argv[] = {"program", "--pad_to_multiple_of", "auto"};
  EXPECT_EQ(parse_args<SFTConfig>(3, argv).pad_to_multiple_of, std::nullopt);
}

TEST(TrainerTable, KnowsItsTrainersAndTheirArguments) {
  const auto names = trainer_names();
  EXPECT_EQ(names[0], "Trainer");
  EXPECT_EQ(names[1], "Seq2SeqTrainer");
  const auto arguments = find_trainer("Seq2SeqTrainer").make_arguments();
  EXPECT_FALSE(arguments->as<Seq2SeqTrainingArguments>().predict_with_generate);
  expect_error([&] { arguments->as<TrainingArguments>(); }, "G-CONF-11", {"struct"});
  expect_error([] { find_trainer("Seq2SeqTrainor"); }, "G-REG-3",
               {"there is no trainer 'Seq2SeqTrainor'", "Did you mean Seq2SeqTrainer?"});
  expect_error([] { register_trainer<Trainer, TrainingArguments>("Trainer"); }, "G-REG-1",
               {"register_trainer: 'Trainer' is there already"});
  expect_error([] { register_trainer({.name = "Nothing"}); }, "G-REG-2", {"'Nothing'"});
}

TEST(TrainerTable, MakesATrainerFromPlainOptionsAndItsArguments) {
  set_log_sink(std::make_shared<testing::SilentLog>());
  const auto entry = find_trainer("Seq2SeqTrainer");
  const auto arguments = entry.make_arguments();
  arguments->set_common({.output_dir = ::testing::TempDir() + "table", .max_steps = 7});
  arguments->as<Seq2SeqTrainingArguments>().generation_num_beams = 3;
  const auto model =
      make_model(torch::nn::Linear(1, 1),
                 [](torch::nn::LinearImpl& linear, const Batch& batch) -> ModelOutput {
                   return {{"loss", linear.forward(batch["x"]).sum()}};
                 });
  const auto made = entry.make({.model = model}, *arguments);
  auto* trainer = dynamic_cast<Seq2SeqTrainer*>(made.get());
  ASSERT_NE(trainer, nullptr);
  EXPECT_EQ(trainer->args().max_steps, 7);
  EXPECT_EQ(trainer->seq2seq_args().generation_num_beams, 3);
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace gradus
