// Fine-tuning on a GPU: recorded steps and recorded generation equal to plain ones, adapters
// without float32 weights on the device.
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/data/dataset.h>
#include <gradus/device/runtime.h>
#include <gradus/models/auto_model.h>
#include <gradus/text/tokenizer.h>
#include <gradus/trainers/dpo.h>
#include <gradus/trainers/grpo.h>
#include <gradus/trainers/sft.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <iostream>

#include "kernels/recorder.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct TrlLog : LogSink {
  void message(LogLevel level, std::string_view text) override {
    if (level >= LogLevel::warning) std::cerr << text << '\n';
    lines.emplace_back(text);
  }
  void print(std::string_view) override {}
  bool has(const std::string& part) const {
    for (const auto& line : lines)
      if (line.find(part) != std::string::npos) return true;
    return false;
  }
  std::vector<std::string> lines;
};

class GpuTrl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device::load_cuda()) GTEST_SKIP() << "no GPU here";
    folder_ = fs::temp_directory_path() / ("gradus-gpu-trl-" + std::to_string(::getpid()));
    make_directory(folder_);
    write_file_atomically(folder_ / "words.txt", "the cat sees one red bird and a blue fish\n");
    tokenizer_ = Tokenizer::train_bpe({folder_ / "words.txt"}, {.vocab_size = 270});
    log_ = std::make_shared<TrlLog>();
    set_log_sink(log_);
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  std::shared_ptr<PreTrainedModel> llama() const {
    torch::manual_seed(3);
    return AutoModelForCausalLM::from_config({{"model_type", "llama"},
                                              {"vocab_size", tokenizer_->full_vocab_size()},
                                              {"hidden_size", 64},
                                              {"intermediate_size", 128},
                                              {"num_hidden_layers", 2},
                                              {"num_attention_heads", 4},
                                              {"num_key_value_heads", 2}});
  }

  static std::string words(int64_t seed, int64_t count) {
    static const std::vector<std::string> kWords = {"the",  "cat", "sees", "one",  "red",
                                                    "bird", "and", "a",    "blue", "fish"};
    std::string text;
    for (int64_t i = 0; i < count; ++i)
      text += (i == 0 ? "" : " ") + kWords[size_t(seed * 7 + i * (seed % 3 + 1)) % kWords.size()];
    return text;
  }

  template <class Arguments>
  void set_common(Arguments& args, const std::string& graphs) const {
    args.output_dir = (folder_ / graphs).string();
    args.max_steps = 12;
    args.learning_rate = 1e-3;
    args.logging_steps = 1;
    args.log_level = "info";
    args.save_strategy = "no";
    args.disable_tqdm = true;
    args.report_to = {"none"};
    args.bf16 = true;
    args.full_determinism = true;
    args.cuda_graphs = graphs;
  }

  /// All numbers of the logs but the times.
  static std::vector<json> numbers_of(const Trainer& trainer) {
    std::vector<json> found;
    for (const auto& entry : trainer.state().log_history) {
      if (!entry.contains("loss")) continue;
      json numbers = entry;
      numbers.erase("step_time");
      found.push_back(numbers);
    }
    return found;
  }

  void expect_recorded(const std::string& graphs) const {
    EXPECT_EQ(log_->has("Recorded a CUDA graph"), graphs == "auto");
    EXPECT_FALSE(log_->has("CUDA graphs are not used in this run"));
  }

  fs::path folder_;
  std::shared_ptr<Tokenizer> tokenizer_;
  std::shared_ptr<TrlLog> log_;
};

TEST_F(GpuTrl, RecordedSftWithLoraHasTheBitsOfPlainSteps) {
  for (const bool packing : {true, false}) {
    std::vector<std::vector<json>> runs;
    for (const std::string graphs : {"off", "auto"}) {
      log_->lines.clear();
      std::vector<Example> rows;
      for (int64_t i = 0; i < 96; ++i) rows.push_back({{"text", words(i, 5 + i % 11)}});
      SFTTrainerOptions options;
      options.model = llama();
      options.train_dataset = from_examples(rows);
      options.processing_class = tokenizer_;
      options.peft_config = LoraConfig{.r = 4, .target_modules = "all-linear"};
      set_common(options.args, graphs);
      options.args.per_device_train_batch_size = 4;
      options.args.max_length = 48;
      options.args.packing = packing;
      SFTTrainer trainer(options);
      trainer.train();
      runs.push_back(numbers_of(trainer));
      expect_recorded(graphs);
      for (const auto& parameter : trainer.model().parameters()) {
        EXPECT_EQ(parameter.scalar_type(), torch::kFloat);
        EXPECT_TRUE(parameter.is_cuda());
      }
    }
    ASSERT_EQ(runs[0].size(), 12U);
    EXPECT_EQ(runs[0], runs[1]) << (packing ? "packed" : "padded");
    EXPECT_LT(runs[0].back().at("loss").get<double>(), runs[0].front().at("loss").get<double>());
  }
}

TEST_F(GpuTrl, RecordedDpoHasTheBitsOfPlainSteps) {
  std::vector<std::vector<json>> runs;
  for (const std::string graphs : {"off", "auto"}) {
    log_->lines.clear();
    std::vector<Example> rows;
    for (int64_t i = 0; i < 64; ++i)
      rows.push_back({{"prompt", words(i, 4)},
                      {"chosen", words(i + 1, 3 + i % 9)},
                      {"rejected", words(i + 2, 3 + i % 7)}});
    DPOTrainerOptions options;
    options.model = llama();
    options.train_dataset = from_examples(rows);
    options.processing_class = tokenizer_;
    set_common(options.args, graphs);
    options.args.per_device_train_batch_size = 4;
    DPOTrainer trainer(options);
    trainer.train();
    runs.push_back(numbers_of(trainer));
    expect_recorded(graphs);
  }
  ASSERT_EQ(runs[0].size(), 12U);
  EXPECT_EQ(runs[0], runs[1]);
  // Policy and reference are the same at first, in the same precision.
  EXPECT_NEAR(runs[0].front().at("loss").get<double>(), std::log(2.0), 1e-6);
}

TEST_F(GpuTrl, RecordedGenerationWritesWhatPlainGenerationWrites) {
  const auto model = llama();
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.mul_(6);
  }
  model->to(torch::kCUDA);
  const auto ids = torch::randint(5, 200, {16, 9}, torch::kLong);
  auto mask = torch::ones_like(ids);
  for (int64_t i = 0; i < 16; ++i) mask[i].narrow(0, 0, i % 5).zero_();
  for (const bool sampled : {false, true}) {
    GenerationOptions options;
    options.max_new_tokens = 60;
    options.do_sample = sampled;
    options.top_k = 0;
    options.pad_token_id = 0;
    options.eos_token_id = TokenIds({11, 12, 13, 14});
    const auto write = [&] {
      device::seed_all(5);
      return model->generate({{"input_ids", ids}, {"attention_mask", mask}}, options).cpu();
    };
    const auto recorded = write();
    const auto before = kernels::set_recorder(nullptr);
    const auto plain = write();
    kernels::set_recorder(before);
    ASSERT_TRUE(before) << "the plugin has set it";
    EXPECT_TRUE(torch::equal(plain, recorded)) << (sampled ? "sampled" : "greedy");
  }
}

TEST_F(GpuTrl, RecordedBeamsWriteWhatPlainBeamsWrite) {
  const std::vector<json> configs = {{{"model_type", "t5"},
                                      {"d_kv", 16},
                                      {"d_ff", 64},
                                      {"num_layers", 2},
                                      {"num_heads", 4},
                                      {"decoder_start_token_id", 0}},
                                     {{"model_type", "bart"},
                                      {"encoder_layers", 2},
                                      {"decoder_layers", 2},
                                      {"encoder_attention_heads", 4},
                                      {"decoder_attention_heads", 4},
                                      {"encoder_ffn_dim", 64},
                                      {"decoder_ffn_dim", 64},
                                      {"decoder_start_token_id", 2}}};
  for (auto config : configs) {
    torch::manual_seed(3);
    config.update({{"vocab_size", 200}, {"d_model", 64}});
    const auto model = AutoModelForSeq2SeqLM::from_config(config);
    {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : model->parameters())
        parameter.mul_(config["model_type"] == "t5" ? 1 : 6);
    }
    model->to(torch::kCUDA);
    const auto ids = torch::randint(5, 200, {6, 9}, torch::kLong);
    for (const int64_t beams : {1, 4}) {
      GenerationOptions options;
      options.max_new_tokens = 60;
      options.num_beams = beams;
      options.no_repeat_ngram_size = 3;
      options.eos_token_id = TokenIds({11, 12});
      const auto recorded = model->generate({{"input_ids", ids}}, options).cpu();
      const auto before = kernels::set_recorder(nullptr);
      const auto plain = model->generate({{"input_ids", ids}}, options).cpu();
      kernels::set_recorder(before);
      EXPECT_FALSE(log_->has("Generation is not recorded"));
      EXPECT_TRUE(torch::equal(plain, recorded)) << config["model_type"] << beams;
    }
  }
}

TEST_F(GpuTrl, GrpoTrainsInBfloat16AndRepeats) {
  std::vector<std::vector<json>> runs;
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<Example> rows;
    for (int64_t i = 0; i < 32; ++i) rows.push_back({{"prompt", words(i, 3 + i % 4)}});
    GRPOTrainerOptions options;
    options.model = llama();
    options.train_dataset = from_examples(rows);
    options.processing_class = tokenizer_;
    set_common(options.args, turn == 0 ? "auto" : "on");  // steps are plain, whatever is asked
    options.args.max_steps = 4;
    options.args.per_device_train_batch_size = 8;
    options.args.num_generations = 4;
    options.args.max_completion_length = 32;
    options.args.beta = 0.04;
    options.reward_funcs = {{"length", [](const RewardInputs& inputs) {
                               std::vector<double> rewards;
                               for (const auto& text : inputs.completions)
                                 rewards.push_back(double(text.size()));
                               return rewards;
                             }}};
    GRPOTrainer trainer(options);
    trainer.train();
    runs.push_back(numbers_of(trainer));
  }
  ASSERT_EQ(runs[0].size(), 4U);
  EXPECT_EQ(runs[0], runs[1]) << "generation is recorded, the same seed gives the same text";
  for (const auto& entry : runs[0]) EXPECT_TRUE(std::isfinite(entry.at("loss").get<double>()));
}

}  // namespace
}  // namespace gradus
