// Every key of every option that is a dictionary: it is taken, refused with an id, or answered with
// a warning. docs/user/nested-options.md says what each does.
#include <gradus/config/gradient_checkpointing.h>
#include <gradus/config/training_options.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gtest/gtest.h>

#include "../error_of.h"

namespace gradus {
namespace {

using nlohmann::json;

struct Warnings : LogSink {
  void message(LogLevel level, std::string_view line) override {
    if (level == LogLevel::warning) lines.emplace_back(line);
  }
  void print(std::string_view) override {}
  std::vector<std::string> lines;
};

/// "taken", the id and message of the error, or "warning: …".
std::string answer(const std::string& option, const json& value) {
  TrainingArguments args;
  OptionSet options;
  options.add(args, training_options());
  const auto sink = std::make_shared<Warnings>();
  const auto before = set_log_sink(sink);
  const auto error = id_and_message_of([&] {
    options.read_dict({{option, value}}, "test");
    args.resolved();
  });
  set_log_sink(before);
  if (error != "no error") return error;
  return sink->lines.empty() ? "taken" : "warning: " + sink->lines.front();
}

struct NestedCase {
  const char* option;
  json value;
  const char* expected;  ///< the answer begins so
};

TEST(NestedOptions, EveryKeyIsAnswered) {
  const NestedCase cases[] = {
      {"accelerator_config", {{"split_batches", true}}, "taken"},
      {"accelerator_config", {{"dispatch_batches", true}}, "taken"},
      {"accelerator_config", {{"dispatch_batches", nullptr}}, "taken"},
      {"accelerator_config", {{"even_batches", false}}, "taken"},
      {"accelerator_config", {{"use_seedable_sampler", false}}, "taken"},
      {"accelerator_config", {{"non_blocking", true}}, "taken"},
      {"accelerator_config", {{"use_configured_state", true}}, "G-CONF-5 "},
      {"accelerator_config", {{"use_configured_state", false}}, "taken"},
      {"accelerator_config", {{"gradient_accumulation_kwargs", nullptr}}, "taken"},
      {"accelerator_config", {{"gradient_accumulation_kwargs", {{"num_steps", 2}}}}, "taken"},
      {"accelerator_config",
       {{"gradient_accumulation_kwargs", {{"adjust_scheduler", true}}}},
       "taken"},
      {"accelerator_config",
       {{"gradient_accumulation_kwargs", {{"sync_with_dataloader", true}}}},
       "taken"},
      {"accelerator_config",
       {{"gradient_accumulation_kwargs", {{"sync_each_batch", true}}}},
       "taken"},
      {"accelerator_config",
       {{"gradient_accumulation_kwargs", {{"steps", 2}}}},
       "G-CONF-1 accelerator_config: gradient_accumulation_kwargs: unknown key steps"},
      {"accelerator_config",
       {{"gradient_accumulation_kwargs", {{"num_steps", 0}}}},
       "G-CONF-2 accelerator_config: gradient_accumulation_kwargs: num_steps: expected a positive "
       "integer, received 0"},
      {"accelerator_config",
       {{"gradient_accumulation_kwargs", {{"sync_each_batch", 1}}}},
       "G-CONF-2 "},
      {"accelerator_config",
       {{"gradient_accumulation_kwargs", 3}},
       "G-CONF-2 accelerator_config: gradient_accumulation_kwargs: expected a dictionary"},
      {"accelerator_config",
       {{"use_seedable_samplers", false}},
       "G-CONF-1 accelerator_config: unknown key use_seedable_samplers"},
      {"accelerator_config", {{"even_batches", nullptr}}, "G-CONF-2 "},
      {"gradient_checkpointing_kwargs", {{"use_reentrant", true}}, "taken"},
      {"gradient_checkpointing_kwargs", {{"determinism_check", "none"}}, "taken"},
      {"gradient_checkpointing_kwargs", {{"debug", true}}, "taken"},
      {"gradient_checkpointing_kwargs", {{"early_stop", false}}, "taken"},
      {"gradient_checkpointing_kwargs", {{"preserve_rng_state", false}}, "taken"},
      {"gradient_checkpointing_kwargs", {{"every_n_layers", 2}}, "taken"},
      {"gradient_checkpointing_kwargs", {{"offload", true}}, "taken"},
      {"gradient_checkpointing_kwargs", {{"context_fn", "f"}}, "G-CONF-10 "},
      {"gradient_checkpointing_kwargs",
       {{"use_reentrent", true}},
       "G-CONF-10 gradient_checkpointing_kwargs: there is no use_reentrent"},
      {"fsdp_config", {{"min_num_params", 1}}, "warning: fsdp_config has no effect"},
      {"deepspeed", {{"train_batch_size", 1}}, "G-CONF-5 deepspeed"},
      {"parallelism_config", {{"tp_size", 2}}, "G-CONF-5 parallelism_config"},
      {"liger_kernel_config", {{"rope", true}}, "warning: liger_kernel_config has no effect"},
  };
  for (const auto& each : cases) {
    const auto found = answer(each.option, each.value);
    EXPECT_TRUE(found.starts_with(each.expected))
        << each.option << " " << each.value << ": " << found << ", expected " << each.expected;
  }
}

TEST(NestedOptions, TheKeysThatChangeSomethingAreThereAfterwards) {
  TrainingArguments args;
  args.accelerator_config = {{"use_seedable_sampler", false},
                             {"gradient_accumulation_kwargs", {{"num_steps", 3}}}};
  const auto resolved = args.resolved();
  EXPECT_EQ(resolved.accelerator_config["use_seedable_sampler"], false);
  EXPECT_EQ(resolved.gradient_accumulation_steps, 3);
}

}  // namespace
}  // namespace gradus
