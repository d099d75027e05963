#include <gradus/config/training_options.h>
#include <gradus/core/error.h>
#include <gtest/gtest.h>

#include <fstream>

#include "../error_of.h"

namespace gradus {
namespace {

/// The error of a command line, or of a dictionary as a config file gives it.
std::string refusal(const std::function<void(OptionSet&)>& read) {
  TrainingArguments args;
  OptionSet options;
  options.add(args, training_options());
  return error_of([&] { read(options); });
}

std::string flag_refusal(const std::string& name) {
  return refusal(
      [&](OptionSet& options) { options.parse(std::vector<std::string>{"--" + name, "true"}); });
}

TEST(RemovedNames, SayWhatToUseInstead) {
  const std::pair<const char*, const char*> cases[] = {
      {"warmup_ratio", "--warmup_steps"},
      {"group_by_length", "--train_sampling_strategy group_by_length"},
      {"logging_dir", "TENSORBOARD_LOGGING_DIR"},
      {"no_cuda", "--use_cpu"},
      {"evaluation_strategy", "--eval_strategy"},
      {"adafactor", "--optim adafactor"},
      {"include_inputs_for_metrics", "--include_for_metrics inputs"},
      {"per_gpu_train_batch_size", "--per_device_train_batch_size"},
  };
  for (const auto& [name, advice] : cases) {
    const auto error = flag_refusal(name);
    EXPECT_NE(
        error.find(std::string("unknown option --") + name + ", which transformers 5 has removed"),
        std::string::npos)
        << error;
    EXPECT_NE(error.find("G-CONF-1"), std::string::npos) << error;
    EXPECT_NE(error.find(advice), std::string::npos) << error;
  }
}

TEST(RemovedNames, AreAllThatTransformers4HadAndTransformers5HasNot) {
  for (const char* name : {"evaluation_strategy",
                           "per_gpu_train_batch_size",
                           "per_gpu_eval_batch_size",
                           "warmup_ratio",
                           "logging_dir",
                           "save_safetensors",
                           "no_cuda",
                           "use_mps_device",
                           "jit_mode_eval",
                           "use_ipex",
                           "fp16_opt_level",
                           "half_precision_backend",
                           "xpu_backend",
                           "tpu_num_cores",
                           "tpu_metrics_debug",
                           "past_index",
                           "sharded_ddp",
                           "fsdp_min_num_params",
                           "fsdp_transformer_layer_cls_to_wrap",
                           "adafactor",
                           "group_by_length",
                           "use_legacy_prediction_loop",
                           "include_inputs_for_metrics",
                           "fp16_backend",
                           "push_to_hub_model_id",
                           "push_to_hub_organization",
                           "push_to_hub_token",
                           "mp_parameters",
                           "torchdynamo",
                           "ray_scope",
                           "dispatch_batches",
                           "split_batches",
                           "include_tokens_per_second",
                           "evaluate_during_training"})
    EXPECT_NE(flag_refusal(name).find("which transformers 5 has removed"), std::string::npos)
        << name;
}

TEST(RemovedNames, AreExplainedInFilesToo) {
  const auto folder = std::filesystem::path(testing::TempDir());
  const std::pair<const char*, const char*> files[] = {
      {"gradus_removed.yaml", "seed: 1\nwarmup-ratio: 0.1\n"},
      {"gradus_removed.json", "{\n  \"warmup_ratio\": 0.1\n}\n"}};
  for (const auto& [name, text] : files) {
    std::ofstream(folder / name) << text;
    const auto error =
        refusal([&, file = folder / name](OptionSet& options) { options.read_file(file); });
    EXPECT_NE(error.find(std::string(name) + " line 2: unknown option warmup"), std::string::npos)
        << error;
    EXPECT_NE(error.find("a value below 1 is a share of all steps"), std::string::npos) << error;
  }
}

TEST(RemovedNames, AreOrdinaryUnknownNamesWhereTheSuccessorIsNotThere) {
  OptionSet options;
  const auto error =
      error_of([&] { options.parse(std::vector<std::string>{"--warmup_ratio", "0.1"}); });
  EXPECT_EQ(error.find("transformers"), std::string::npos) << error;
}

}  // namespace
}  // namespace gradus
