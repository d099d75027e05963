#include "config/sharding.h"

#include <gradus/core/error.h>
#include <gtest/gtest.h>

#include "../error_of.h"

namespace gradus::config {
namespace {

Sharding sharding(TrainingArguments args) { return sharding_of(args.resolved()); }

TEST(Sharding, IsSpelledAsInTransformers) {
  EXPECT_EQ(sharding({}).stage, 0);
  EXPECT_EQ(sharding({.fsdp = ""}).stage, 0);
  EXPECT_EQ(sharding({.fsdp = "true"}).stage, 3);
  EXPECT_EQ(sharding({.fsdp = "full_shard auto_wrap offload"}).stage, 3);
  EXPECT_EQ(sharding({.fsdp = "shard_grad_op"}).stage, 2);
  EXPECT_EQ(sharding({.fsdp = "no_shard"}).stage, 0);
  EXPECT_EQ(sharding({.fsdp = "true", .fsdp_config = {{"reshard_after_forward", false}}}).stage, 2);
  EXPECT_EQ(sharding({.fsdp = "true",
                      .fsdp_config = {{"version", 1}, {"reshard_after_forward", "shard_grad_op"}}})
                .stage,
            2);
  EXPECT_EQ(sharding({.zero_stage = 1}).stage, 1);
}

TEST(Sharding, ChecksTheKeysOfItsDictionary) {
  const auto failure = [](TrainingArguments args) {
    return id_and_message_of([&] { args.resolved(); });
  };
  EXPECT_EQ(failure({.fsdp = "hybrid_shard"}).substr(0, 8), "G-CONF-5");
  EXPECT_EQ(failure({.fsdp = "fullshard"}).substr(0, 8), "G-CONF-2");
  EXPECT_EQ(failure({.fsdp = "true", .fsdp_config = {{"min_params", 1}}}),
            "G-CONF-1 fsdp_config: unknown key min_params");
  EXPECT_EQ(failure({.fsdp = "true", .fsdp_config = {{"xla", true}}}),
            "G-CONF-5 fsdp_config: xla: gradus does not run on XLA");
  EXPECT_EQ(failure({.fsdp = "true", .fsdp_config = {{"state_dict_type", "LOCAL"}}}),
            "G-CONF-2 fsdp_config: state_dict_type: expected FULL_STATE_DICT or "
            "SHARDED_STATE_DICT, received \"LOCAL\"");
  EXPECT_EQ(failure({.fsdp = "full_shard", .zero_stage = 1}),
            "G-CONF-4 zero_stage is 1, but fsdp asks for stage 3");
  EXPECT_EQ(failure({.zero_stage = 4}).substr(0, 8), "G-CONF-3");
}

TEST(Sharding, SaysHowCheckpointsAreWritten) {
  EXPECT_FALSE(sharding({.fsdp = "true"}).sharded_checkpoints) << "as in transformers";
  EXPECT_TRUE(sharding({.zero_stage = 3}).sharded_checkpoints);
  EXPECT_TRUE(
      sharding({.fsdp = "true", .fsdp_config = {{"fsdp_state_dict_type", "SHARDED_STATE_DICT"}}})
          .sharded_checkpoints);
  const auto wrapped =
      sharding({.fsdp = "true",
                .fsdp_config = {{"auto_wrap_policy", "SIZE_BASED_WRAP"}, {"min_num_params", 100}}});
  EXPECT_EQ(wrapped.wrap, Sharding::Wrap::by_size);
  EXPECT_EQ(wrapped.min_num_params, 100);
  EXPECT_TRUE(
      (TrainingArguments{.fsdp = "true", .fsdp_config = {{"activation_checkpointing", true}}})
          .resolved()
          .gradient_checkpointing);
}

}  // namespace
}  // namespace gradus::config
