#include "trainers/completions_log.h"

#include <gradus/data/load_dataset.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace gradus {
namespace {

TEST(CompletionsLog, TableHasFramesAndWrappedTexts) {
  EXPECT_EQ(framed_table("Step 3",
                         {{"Prompt", "score"}, {"über all hinaus", "1.00"}, {"b\nc", "0.50"}}, 24),
            "Step 3\n"
            "┏━━━━━━━━━━━━━━┳━━━━━━━┓\n"
            "┃ Prompt       ┃ score ┃\n"
            "┡━━━━━━━━━━━━━━╇━━━━━━━┩\n"
            "│ über all hin │ 1.00  │\n"
            "│ aus          │       │\n"
            "├──────────────┼───────┤\n"
            "│ b            │ 0.50  │\n"
            "│ c            │       │\n"
            "└──────────────┴───────┘\n");
}

TEST(CompletionsLog, KeepsTheNewestAndWritesThem) {
  CompletionsLog log(2);
  log.add(
      {{"prompt", {"a", "b", "c"}}, {"completion", {"x", "y", "z"}}, {"reward", {1.0, 0.0, 2.0}}});
  CompletionsLog again(2);
  again.load(log.state());
  const auto folder =
      std::filesystem::temp_directory_path() / ("completions_log_" + std::to_string(::getpid()));
  again.save(folder, 12);
  const auto rows = load_dataset((folder / "completions_00012.parquet").string());
  ASSERT_EQ(rows->size(), 2);
  EXPECT_EQ(rows->get(0)["prompt"].str(), "b");
  EXPECT_EQ(rows->get(1)["completion"].str(), "z");
  EXPECT_EQ(rows->get(1)["reward"].number(), 2);
  EXPECT_EQ(rows->get(1)["step"].integer(), 12);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gradus
