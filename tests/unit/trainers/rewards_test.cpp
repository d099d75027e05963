// Rewards of the library, with numbers of trl's own documentation where it has such a reward.
#include <gradus/trainers/rewards.h>
#include <gtest/gtest.h>

#include <cmath>

#include "../error_of.h"

namespace gradus {
namespace {

/// A batch of completions: their texts and, in place of tokens, lists of numbers.
class RewardBatch {
 public:
  RewardBatch() : in(state_, notes) {}
  std::vector<double> ask(const std::string& reward) { return find_reward(reward).function()(in); }

 private:
  TrainerState state_;

 public:
  RewardInputs::Notes notes;
  RewardInputs in;
};

using Numbers = std::vector<double>;

TEST(Rewards, ExactMatchComparesWithAColumn) {
  RewardBatch batch;
  batch.in.completions = {" 12\n", "13", "7"};
  batch.in.columns["answer"] = {"12", "12", 7};
  EXPECT_EQ(batch.ask("exact_match"), (Numbers{1, 0, 1}));
  batch.in.columns["other"] = {"a", "13", "b"};
  EXPECT_EQ(batch.ask("exact_match:other"), (Numbers{0, 1, 0}));
  expect_error([&] { batch.ask("exact_match:othr"); }, "G-RWD-1", {"othr", "Did you mean other?"});
}

TEST(Rewards, RegularExpressionIsSearched) {
  RewardBatch batch;
  batch.in.completions = {"it is 12.", "none", ""};
  EXPECT_EQ(batch.ask("regex:[0-9]+"), (Numbers{1, 0, 0}));
  expect_error([&] { find_reward("regex:("); }, "G-RWD-3", {"not a regular expression"});
  expect_error([&] { find_reward("regex"); }, "G-RWD-3", {"no expression"});
}

TEST(Rewards, VeryLongTextsAreSearchedWhole) {
  RewardBatch batch;
  batch.in.completions = {std::string(5'000'000, 'a'), std::string(5'000'000, 'a') + "c"};
  EXPECT_EQ(batch.ask("regex:^(a|b)*$"), (Numbers{1, 0}));
}

TEST(Rewards, LengthIsHighestAtTheWantedNumber) {
  RewardBatch batch;
  batch.in.completions = {"", "", ""};
  batch.in.completion_ids = {{1, 2}, {1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9}};
  EXPECT_EQ(batch.ask("length:4"), (Numbers{0.5, 1, 0}));
  expect_error([&] { find_reward("length:many"); }, "G-RWD-3", {"'many' is not a number"});
}

TEST(Rewards, ThinkFormatAsInTrl) {
  RewardBatch batch;
  batch.in.completions = {"<think>\nThis is my reasoning.\n</think>\nThis is my answer.",
                          "<think>\nThis is my reasoning.\nThis is my answer.",
                          "<think>a</think><think>b</think>", "x<think>a</think>"};
  EXPECT_EQ(batch.ask("think_format_reward"), (Numbers{1, 0, 0, 0}));
}

TEST(Rewards, OverlongPunishmentAsInTrl) {
  RewardBatch batch;
  batch.in.completions.resize(3);
  batch.in.completion_ids = {std::vector<int64_t>(90, 1), std::vector<int64_t>(80, 1),
                             std::vector<int64_t>(101, 1)};
  EXPECT_EQ(batch.ask("get_soft_overlong_punishment:100,20"), (Numbers{-0.5, 0, -1}));
}

TEST(Rewards, RepetitionPenaltyAsInTrl) {
  RewardBatch batch;
  batch.in.completions.resize(3);
  batch.in.completion_ids = {{1, 2, 3, 4}, {5, 5, 5, 5, 5}, {1}};
  EXPECT_EQ(batch.ask("get_repetition_penalty_reward:2,-1"), (Numbers{0, -0.75, 0}));
}

TEST(Rewards, UnknownNamesAreAnsweredWithTheNearest) {
  expect_error([&] { find_reward("exact_mach"); }, "G-RWD-3",
               {"exact_mach", "Did you mean exact_match?", "--reward_command"});
  expect_error([&] { find_reward("accuracy_reward"); }, "G-RWD-3", {"math-verify"});
}

TEST(Rewards, UsersAddTheirOwn) {
  register_reward("rewards_test_constant", [](const std::string& text) {
    return Reward("constant", [value = std::stod(text)](const RewardInputs& in) {
      return std::vector<double>(in.completions.size(), value);
    });
  });
  RewardBatch batch;
  batch.in.completions = {"a", "b"};
  EXPECT_EQ(batch.ask("rewards_test_constant:2.5"), (Numbers{2.5, 2.5}));
}

TEST(Rewards, ACommandAnswersLineByLine) {
  RewardBatch batch;
  batch.in.prompts = {"p", "q"};
  batch.in.completions = {"a", "b"};
  batch.in.columns["level"] = {1, nullptr};
  // The question comes back in the second answer's text, so that the form of it is tested.
  const auto reward = command_reward(
      "test",
      {.command = R"(read x; echo '{"rewards": [1, null]}'; read x; echo "$x"; cat >/dev/null)"});
  const auto first = reward.function()(batch.in);
  EXPECT_EQ(first[0], 1);
  EXPECT_TRUE(std::isnan(first[1]));
  expect_error(
      [&] { reward.function()(batch.in); }, "G-RWD-2",
      {"without rewards", R"("columns": {"level": [1, null]})", R"("prompts": ["p", "q"])"});
}

TEST(Rewards, ACommandGivesOneLineForEachQuestion) {
  // The next question would be answered by the second line.
  RewardBatch batch;
  batch.in.completions = {"a"};
  const auto twice = command_reward(
      "test",
      {.command = R"(while read x; do printf '{"rewards": [1]}\n{"rewards": [2]}\n'; done)"});
  expect_error([&] { twice.function()(batch.in); }, "G-RWD-2",
               {"more than one line for one question"});
}

TEST(Rewards, ACommandThatWritesTooMuchIsAnswered) {
  RewardBatch batch;
  batch.in.prompts = {"p"};
  batch.in.completions = {"a"};
  const auto ask = [&](const std::string& command) {
    const auto reward = command_reward("test", {.command = command, .timeout = 5, .restarts = 0});
    for (int i = 0; i < 2; ++i) reward.function()(batch.in);
  };
  // The second line was there before the question that it would have answered.
  expect_error([&] { ask(R"(printf '{"rewards": [1]}\n{"rewards": [2]}\n'; cat >/dev/null)"); },
               "G-RWD-2", {"more than one line", "[2]"});
  expect_error([&] { ask("read x; cat /dev/zero"); }, "G-RWD-2", {"gives no rewards"});
}

}  // namespace
}  // namespace gradus
