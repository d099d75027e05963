#include "trainers/rollout_memory.h"

#include <gtest/gtest.h>

#include <latch>

#include "../../silent_log.h"
#include "several_processes.h"

namespace gradus {
namespace {

/// Two parts whose numbers and widths are those of one process.
std::vector<Batch> parts_of(int64_t rank) {
  const auto ids = torch::arange(6 * (rank + 1)).reshape({2, -1}) + 100 * rank;
  std::vector<Batch> parts(2);
  for (int64_t i = 0; i < 2; ++i) {
    parts[size_t(i)].set("completion_ids", ids.narrow(0, i, 1));
    parts[size_t(i)].set("advantages", torch::full({1}, double(rank + i), torch::kFloat));
    parts[size_t(i)].set("num_items_in_batch", torch::tensor(int64_t{18}));
  }
  return parts;
}

void expect_same(const std::vector<Batch>& found, const std::vector<Batch>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i)
    for (const auto& [name, value] : wanted[i]) EXPECT_TRUE(found[i][name].equal(value)) << name;
}

void fill(RolloutMemory& memory, int64_t rank) {
  memory.step = 7;
  memory.last_rewards = {{"reward", 0.5}};
  memory.parts = parts_of(rank);
}

TEST(RolloutMemory, BringsBackWhatIsLeft) {
  CompletionsLog table(4);
  RolloutMemory memory(nullptr, table), restored(nullptr, table);
  fill(memory, 0);
  const auto state = memory.tensor_state();
  restored.load_tensor_state(state);
  EXPECT_EQ(restored.step, 7);
  EXPECT_EQ(restored.last_rewards.at("reward"), 0.5);
  expect_same(restored.parts, parts_of(0));
}

TEST(RolloutMemory, EveryProcessGetsItsOwnCompletionsBack) {
  StateTree saved;
  std::latch is_saved(1);
  testing::in_processes(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    CompletionsLog table(4);
    RolloutMemory memory(group, table);
    fill(memory, group->rank());
    memory.gather_state();
    if (group->rank() == 0) {
      saved = memory.tensor_state();  // as checkpoints do
      is_saved.count_down();
    }
    is_saved.wait();
    RolloutMemory restored(group, table);
    restored.load_tensor_state(saved);
    EXPECT_EQ(restored.step, 7);
    expect_same(restored.parts, parts_of(group->rank()));
  });
}

TEST(RolloutMemory, AnotherNumberOfProcessesMakesNewCompletions) {
  const auto sink = set_log_sink(std::make_shared<testing::SilentLog>());
  CompletionsLog table(4);
  RolloutMemory memory(nullptr, table);
  fill(memory, 0);
  const auto state = memory.tensor_state();
  testing::in_processes(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    CompletionsLog own(4);
    RolloutMemory restored(group, own);
    restored.load_tensor_state(state);
    EXPECT_TRUE(restored.parts.empty());
    EXPECT_EQ(restored.step, 0);
  });
  set_log_sink(sink);
}

}  // namespace
}  // namespace gradus
