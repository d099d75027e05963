// Generation with recorded steps writes what plain generation writes. A recorder that only
// remembers the work stands for the GPU's.
#include <gradus/models/auto_model.h>
#include <gradus/models/peft_model.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "kernels/recorder.h"

namespace gradus {
namespace {

using torch::Tensor;

/// Counts what was recorded and replayed.
struct Counts {
  int recorded = 0, replayed = 0;
};

struct RememberedWork : kernels::RecordedWork {
  RememberedWork(std::function<void()> given, Counts& counts)
      : work(std::move(given)), counts_(counts) {}
  void replay() override {
    ++counts_.replayed;
    work();
  }
  std::function<void()> work;

 private:
  Counts& counts_;
};

/// Records on the CPU while it lives.
class RecordsHere {
 public:
  explicit RecordsHere(bool fails = false) {
    auto recorder = std::make_shared<kernels::Recorder>();
    recorder->takes = [](torch::Device) { return true; };
    recorder->own_stream = [](torch::Device) { return nullptr; };
    recorder->record = [this, fails](const std::function<void()>& work) {
      if (fails) throw std::runtime_error("this cannot be recorded");
      ++counts.recorded;
      return std::make_unique<RememberedWork>(work, counts);
    };
    before_ = kernels::set_recorder(recorder);
  }
  ~RecordsHere() { kernels::set_recorder(before_); }

  Counts counts;

 private:
  std::shared_ptr<const kernels::Recorder> before_;
};

std::shared_ptr<PreTrainedModel> writer(const std::string& kind, int64_t positions = 2048) {
  torch::manual_seed(4);
  nlohmann::json config = {{"model_type", kind}, {"vocab_size", 40}};
  if (kind == "gpt2")
    config.update({{"n_embd", 16}, {"n_layer", 2}, {"n_head", 2}, {"n_positions", positions}});
  else
    config.update({{"hidden_size", 16},
                   {"intermediate_size", 24},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 4},
                   {"num_key_value_heads", 2},
                   {"max_position_embeddings", positions}});
  auto model = AutoModelForCausalLM::from_config(config);
  // Larger weights, so that the next token is not a matter of the last bits.
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.mul_(8);
  return model;
}

/// Prompts of several lengths, padded on the left.
Batch prompts(int64_t rows) {
  const auto ids = torch::randint(3, 40, {rows, 6}, torch::kLong);
  auto mask = torch::ones_like(ids);
  for (int64_t i = 0; i < rows; ++i) mask[i].narrow(0, 0, i % 4).zero_();
  return {{"input_ids", ids.masked_fill(mask.eq(0), 0)}, {"attention_mask", mask}};
}

Tensor written(PreTrainedModel& model, const Batch& batch, const GenerationOptions& options) {
  torch::manual_seed(11);
  return model.generate(batch, options);
}

void expect_same_text(PreTrainedModel& model, const GenerationOptions& options, int64_t rows,
                      int recordings) {
  const auto batch = prompts(rows);
  const auto plain = written(model, batch, options);
  RecordsHere here;
  const auto recorded = written(model, batch, options);
  EXPECT_TRUE(torch::equal(plain, recorded)) << plain << recorded;
  EXPECT_EQ(here.counts.recorded, recordings);
  EXPECT_GT(here.counts.replayed, 10);
}

GenerationOptions without_end(int64_t tokens, bool sampled) {
  GenerationOptions options;
  options.max_new_tokens = tokens;
  options.do_sample = sampled;
  options.top_k = 0;
  options.eos_token_id = TokenIds(std::vector<int64_t>{});
  options.pad_token_id = 0;
  return options;
}

TEST(RecordedSampling, WritesTheSameTokens) {
  for (const auto* kind : {"llama", "gpt2"})
    for (const bool sampled : {false, true}) {
      SCOPED_TRACE(std::string(kind) + (sampled ? ", sampled" : ", greedy"));
      const auto model = writer(kind);
      auto options = without_end(40, sampled);
      expect_same_text(*model, options, 5, 1);
      if (!sampled) continue;
      options.temperature = 0.7;
      options.top_k = 12;
      options.top_p = 0.9;
      expect_same_text(*model, options, 5, 1);
    }
}

TEST(RecordedSampling, WritesTheSameTokensWithAnAdapter) {
  LoraConfig config{.r = 4, .target_modules = "all-linear"};
  config.init_lora_weights = "false";
  const auto model = get_peft_model(writer("llama"), config);
  expect_same_text(*model, without_end(30, true), 3, 1);
}

TEST(RecordedSampling, RowsThatAreFinishedLeaveAndTheTextEndsWithTheLast) {
  const auto model = writer("llama");
  auto options = without_end(120, true);
  options.temperature = 3;
  options.eos_token_id = TokenIds(std::vector<int64_t>{7, 9, 30});
  const auto batch = prompts(32);
  const auto plain = written(*model, batch, options);
  ASSERT_LT(plain.size(1), 126) << "all rows end";
  RecordsHere here;
  EXPECT_TRUE(torch::equal(written(*model, batch, options), plain));
  EXPECT_GT(here.counts.recorded, 1) << "smaller batches are recorded, too";
}

TEST(RecordedSampling, LongRowsGetRoomStepByStep) {
  const auto model = writer("llama");
  expect_same_text(*model, without_end(530, false), 2, 3);
}

TEST(RecordedSampling, WhatCannotBeRecordedRunsPlainly) {
  const auto model = writer("llama");
  const auto batch = prompts(3);
  auto options = without_end(30, false);
  const auto plain = written(*model, batch, options);
  {
    RecordsHere here(/*fails=*/true);
    EXPECT_TRUE(torch::equal(written(*model, batch, options), plain));
  }
  RecordsHere here;
  options.use_cache = false;
  EXPECT_TRUE(torch::equal(written(*model, batch, options), plain));
  EXPECT_EQ(here.counts.recorded, 0);
}

/// T5 and BART, whose weights are large enough that the next token is clear.
std::shared_ptr<PreTrainedModel> translator(const std::string& kind) {
  torch::manual_seed(4);
  nlohmann::json config = {{"model_type", kind}, {"vocab_size", 40}, {"d_model", 16}};
  if (kind == "t5")
    config.update({{"d_kv", 8},
                   {"d_ff", 24},
                   {"num_layers", 2},
                   {"num_heads", 2},
                   {"decoder_start_token_id", 0}});
  else
    config.update({{"encoder_layers", 1},
                   {"decoder_layers", 2},
                   {"encoder_attention_heads", 2},
                   {"decoder_attention_heads", 2},
                   {"encoder_ffn_dim", 24},
                   {"decoder_ffn_dim", 24},
                   {"decoder_start_token_id", 2},
                   {"max_position_embeddings", 64}});
  auto model = AutoModelForSeq2SeqLM::from_config(config);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.mul_(kind == "t5" ? 1 : 8);
  return model;
}

/// What is written with and without a recorder, and how often it recorded.
int same_text(PreTrainedModel& model, const Batch& batch, const GenerationOptions& options) {
  const auto plain = written(model, batch, options);
  RecordsHere here;
  const auto recorded = written(model, batch, options);
  EXPECT_TRUE(torch::equal(plain, recorded)) << plain << recorded;
  EXPECT_GT(here.counts.replayed, here.counts.recorded);
  return here.counts.recorded;
}

TEST(RecordedDecoding, BeamsWriteTheSameTokens) {
  for (const auto* kind : {"llama", "gpt2"}) {
    const auto model = writer(kind);
    for (const bool sampled : {false, true}) {
      auto options = without_end(40, sampled);
      options.num_beams = 3;
      EXPECT_EQ(same_text(*model, prompts(5), options), 1) << kind;
    }
    auto options = without_end(40, false);
    options.repetition_penalty = 1.3;  // reads the text
    EXPECT_EQ(same_text(*model, prompts(5), options), 1) << kind;
  }
  for (const auto* kind : {"t5", "bart"}) {
    const auto model = translator(kind);
    for (const int64_t beams : {1, 4}) {
      auto options = without_end(40, false);
      options.num_beams = beams;
      EXPECT_EQ(same_text(*model, prompts(5), options), 1) << kind << beams;
      options.no_repeat_ngram_size = 2;  // what is made of the scores may differ from step to step
      options.repetition_penalty = 1.3;
      EXPECT_EQ(same_text(*model, prompts(5), options), 1) << kind << beams;
    }
  }
}

TEST(RecordedDecoding, PromptsThatAreSettledLeave) {
  for (const auto* kind : {"t5", "bart"})
    for (const int64_t beams : {1, 3}) {
      const auto model = translator(kind);
      auto options = without_end(60, false);
      options.num_beams = beams;
      options.eos_token_id = TokenIds(std::vector<int64_t>{5, 6, 7, 8});
      const auto batch = prompts(12);
      EXPECT_GE(same_text(*model, batch, options), 1) << kind << beams;
    }
}

TEST(RecordedDecoding, LongRowsGetRoomStepByStep) {
  const auto model = translator("t5");
  auto options = without_end(600, false);
  options.num_beams = 2;
  EXPECT_EQ(same_text(*model, prompts(2), options), 3);
}

TEST(RecordedDecoding, RowsBeyondTheModelsPositionsRunPlainly) {
  const auto model = translator("bart");
  auto options = without_end(70, false);
  RecordsHere here;
  EXPECT_ANY_THROW(written(*model, prompts(2), options)) << "the table of positions has 64 rows";
  EXPECT_EQ(here.counts.recorded, 0);
}

}  // namespace
}  // namespace gradus
