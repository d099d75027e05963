#include "regression.h"

namespace gradus::testing {
namespace {

struct EvalLoaderTrainer : Trainer {
  using Trainer::get_eval_dataloader;
  using Trainer::Trainer;
};

// As in transformers, where unused columns are removed before the sampler looks for lengths.
TEST(Evaluation, TestLengthColumnCountsOnlyWhenItIsNotRemoved) {
  std::vector<Example> rows;
  for (int64_t i = 0; i < 10; ++i)
    rows.push_back({{"input_x", double(i)},
                    {"labels", 0.0},
                    {"input_ids", Value::Ints(size_t(i + 1), 1)},
                    {"length", 100 - i}});
  for (const bool removes : {true, false}) {
    Box box;
    auto options = regression(
        box, {.remove_unused_columns = removes, .train_sampling_strategy = "group_by_length"});
    options.data_collator = [](std::vector<Example> batch) {
      return Batch{{"first", torch::tensor(batch.front().at("input_x").number())}};
    };
    EvalLoaderTrainer trainer(std::move(options));
    auto batches = trainer.get_eval_dataloader(from_examples(rows)).iterate(0);
    // The longest row comes first: row 9 by its ids, row 0 by the column.
    EXPECT_EQ((*batches.next())["first"].item<double>(), removes ? 9.0 : 0.0);
  }
}

}  // namespace
}  // namespace gradus::testing
