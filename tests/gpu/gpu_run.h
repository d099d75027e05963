#pragma once

// Small runs on a GPU: model, data, arguments, and what the log says.
#include <gradus/core/log.h>
#include <gradus/data/dataset.h>
#include <gradus/device/runtime.h>
#include <gradus/models/auto_model.h>
#include <gradus/train/trainer.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gradus {

namespace fs = std::filesystem;

struct Recorder : LogSink {
  void message(LogLevel level, std::string_view text) override {
    if (level >= LogLevel::warning) std::cerr << text << '\n';
    const std::scoped_lock lock(mutex);
    lines.emplace_back(text);
  }
  void print(std::string_view) override {}
  void clear() {
    const std::scoped_lock lock(mutex);
    lines.clear();
  }
  bool has(const std::string& part) {
    const std::scoped_lock lock(mutex);
    for (const auto& line : lines)
      if (line.find(part) != std::string::npos) return true;
    return false;
  }
  std::mutex mutex;
  std::vector<std::string> lines;
};

inline std::shared_ptr<PreTrainedModel> gpt2(double dropout, uint64_t seed = 3) {
  torch::manual_seed(seed);
  return AutoModelForCausalLM::from_config({{"model_type", "gpt2"},
                                            {"vocab_size", 131},
                                            {"n_positions", 64},
                                            {"n_embd", 64},
                                            {"n_layer", 2},
                                            {"n_head", 4},
                                            {"resid_pdrop", dropout},
                                            {"embd_pdrop", dropout},
                                            {"attn_pdrop", dropout}});
}

inline std::shared_ptr<Dataset> tokens(int64_t rows, int64_t length = 32) {
  torch::manual_seed(9);
  const auto ids =
      (torch::randint(0, 128, {rows, 1}, torch::kLong) + torch::arange(length)).remainder(131);
  return from_tensors({{"input_ids", ids}, {"labels", ids}});
}

inline TrainingArguments arguments(const std::string& output_dir) {
  return {.output_dir = output_dir,
          .per_device_train_batch_size = 8,
          .max_steps = 100,
          .learning_rate = 1e-3,
          .warmup_steps = 10,
          .logging_steps = 1,
          .log_level = "info",
          .disable_tqdm = true,
          .save_strategy = "no",
          .full_determinism = true};
}

inline std::vector<double> losses(Trainer& trainer) {
  std::vector<double> values;
  for (const auto& entry : trainer.state().log_history)
    if (entry.contains("loss")) values.push_back(entry.at("loss").get<double>());
  return values;
}

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device::load_cuda()) GTEST_SKIP() << "no GPU here";
    folder_ = fs::temp_directory_path() / ("gradus-gpu-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    log_ = std::make_shared<Recorder>();
    set_log_sink(log_);
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  std::string out(const std::string& name) const { return (folder_ / name).string(); }

  /// The losses of a run, which must be recorded where that is asked for and nowhere else.
  std::vector<double> train(const TrainingArguments& args, double dropout = 0.1) {
    log_->clear();
    Trainer trainer({.model = gpt2(dropout), .args = args, .train_dataset = tokens(64)});
    trainer.train();
    EXPECT_EQ(log_->has("Recorded a CUDA graph"), args.cuda_graphs == "on");
    EXPECT_EQ(log_->has("rows, clipping and the optimizer's step"), args.cuda_graphs == "on")
        << "the whole step is one graph";
    EXPECT_FALSE(log_->has("CUDA graphs are not used in this run"));
    return losses(trainer);
  }

  fs::path folder_;
  std::shared_ptr<Recorder> log_;
};

}  // namespace gradus
