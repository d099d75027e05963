// The log of a run: read like a vector, kept as text, shared by copies.
#include <gradus/core/json.h>
#include <malloc.h>

#include "regression.h"

namespace gradus::testing {
namespace {

json entry(int64_t step) {
  return log_entry(
      {{"loss", 1.0 / double(step + 1)}, {"grad_norm", 0.1 * double(step)}, {"epoch", 0.5}}, step);
}

LogHistory history_of(int64_t count) {
  LogHistory history;
  for (int64_t i = 0; i < count; ++i) history.push_back(entry(i));
  return history;
}

TEST(LogHistory, IsReadLikeAVector) {
  LogHistory history;
  EXPECT_TRUE(history.empty());
  EXPECT_EQ(history.begin(), history.end());
  history = history_of(5000);  // more than one block of text
  EXPECT_EQ(history.size(), 5000U);
  int64_t step = 0;
  for (const auto& each : history) EXPECT_EQ(each, entry(step++));
  EXPECT_EQ(step, 5000);
  EXPECT_EQ(history.front(), entry(0));
  EXPECT_EQ(history[4321], entry(4321));
  EXPECT_EQ(history.at(4999), entry(4999));
  EXPECT_EQ(history.back(), entry(4999));
  EXPECT_THROW(history.at(5000), std::out_of_range);
  EXPECT_EQ(history.begin()->at("step"), 0);
  EXPECT_EQ((*(history.end() - 2)).at("step"), 4998);
  const auto found = std::find_if(history.rbegin(), history.rend(),
                                  [](const json& each) { return each.at("step") < 100; });
  EXPECT_EQ((*found).at("step"), 99);
  const std::vector<json> all = history;
  EXPECT_EQ(all.size(), 5000U);
  EXPECT_EQ(all[77], entry(77));
  EXPECT_EQ(json(history).size(), 5000U);
  EXPECT_EQ(json(history).get<LogHistory>(), history);
}

TEST(LogHistory, TheNewestMayStillBeChanged) {
  LogHistory history{entry(0), entry(1)};
  history.back()["tokens_per_second"] = 5.0;
  EXPECT_EQ(history[1].at("tokens_per_second"), 5.0);
  history.push_back(entry(2));
  EXPECT_EQ(history[1].at("tokens_per_second"), 5.0);
  EXPECT_FALSE(history.back().contains("tokens_per_second"));
}

TEST(LogHistory, CopiesAreApart) {
  auto history = history_of(3000);
  const auto copy = history;
  history.back()["x"] = 1;
  history.push_back(entry(3000));
  EXPECT_EQ(copy, history_of(3000));
  EXPECT_EQ(history.size(), 3001U);
  history = copy;
  EXPECT_EQ(history.size(), 3000U);
}

TEST(LogHistory, TheFileIsTheSameJson) {
  for (const int64_t count : {0, 1, 2, 5000}) {
    TrainerState state;
    state.log_history = history_of(count);
    if (count > 0) {
      state.log_history.push_back({{"loss", NAN}, {"text", "a \"quote\"\n\u00e9"}, {"step", 9}});
      state.log_history.push_back(
          {{"list", {1, 2.5}}, {"none", nullptr}, {"empty", json::object()}});
    }
    EXPECT_EQ(state.to_text(), dump_json(state.to_json(), 2) + "\n") << count;
    EXPECT_EQ(TrainerState::from_json(parse_json(state.to_text(), "text")).to_text(),
              state.to_text());
  }
}

TEST(LogHistory, AnEntryTakesLittleMemoryAndACopyNone) {
  const auto bytes = [] { return ::mallinfo2().uordblks + ::mallinfo2().hblkhd; };
  constexpr size_t kEntries = 100'000;
  const auto before = bytes();
  TrainerState state;
  state.log_history = history_of(kEntries);
  EXPECT_LT(bytes() - before, 200 * kEntries);
  const auto with_one = bytes();
  const auto pieces = state.text_pieces();
  const auto copy = state.log_history;
  EXPECT_LT(bytes() - with_one, size_t{2} << 20) << "blocks are shared";
  EXPECT_EQ(copy.size(), kEntries);
  size_t length = 0;
  for (const auto& piece : pieces) length += piece->size();
  EXPECT_EQ(length, state.to_text().size());
}

}  // namespace
}  // namespace gradus::testing
