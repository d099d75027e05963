#include <gradus/data/data_loader.h>

#include <gtest/gtest.h>

#include <set>

namespace gradus {
namespace {

using SharedRows = std::vector<int64_t>;
/// Batches with `BatchIterator::step_rows`.
using SharedBatches = std::vector<std::pair<SharedRows, std::optional<int64_t>>>;

struct CountedRows : IterableDataset {
  explicit CountedRows(int64_t rows) : rows(rows) {}
  std::optional<Example> next() override {
    return at < rows ? std::optional(Example{{"row", at++}}) : std::nullopt;
  }
  void reset(int64_t) override { at = 0; }
  int64_t rows, at = 0;
};

SharedBatches shared_batches(DatasetRef rows, DataShard shard, int64_t workers) {
  const DataLoader loader(
      {.dataset = std::move(rows), .batch_size = 4, .num_workers = workers, .shard = shard});
  auto iterator = loader.iterate(0);
  SharedBatches found;
  while (auto batch = iterator.next()) {
    const auto row = (*batch)["row"].flatten();
    const auto* first = row.const_data_ptr<int64_t>();
    found.emplace_back(SharedRows(first, first + row.numel()), iterator.step_rows());
  }
  return found;
}

// accelerate's DataLoaderDispatcher and BatchSamplerShard with 11 rows, batches of 4 and two
// processes.
TEST(DataShard, SharesTheLastStep) {
  for (const int64_t workers : {0, 2}) {
    for (const bool streams : {false, true}) {
      const auto of = [&](DataShard shard) {
        return streams ? shared_batches(std::make_shared<CountedRows>(11), shard, workers)
                       : shared_batches(from_tensors({{"row", torch::arange(11)}}), shard, workers);
      };
      using Expected = SharedBatches;
      EXPECT_EQ(of({.rank = 0, .world = 2, .dispatch = true}),
                (Expected{{{0, 1, 2, 3}, 8}, {{8, 9}, 3}}));
      EXPECT_EQ(of({.rank = 1, .world = 2, .dispatch = true}),
                (Expected{{{4, 5, 6, 7}, 8}, {{10, 0}, 3}}));
      EXPECT_EQ(of({.rank = 1, .world = 2, .split_batches = true, .dispatch = true}),
                (Expected{{{2, 3}, 4}, {{6, 7}, 4}, {{10, 0}, 3}}));
      EXPECT_EQ(of({.rank = 0, .world = 2}), (Expected{{{0, 1, 2, 3}, 8}, {{8, 9, 10, 0}, 3}}));
      EXPECT_EQ(of({.rank = 1, .world = 2}), (Expected{{{4, 5, 6, 7}, 8}, {{1, 2, 3, 4}, 3}}));
      EXPECT_EQ(of({.rank = 0, .world = 2, .even_batches = false}),
                (Expected{{{0, 1, 2, 3}, 8}, {{8, 9, 10}, 3}}));
      EXPECT_EQ(of({}).back(), (SharedBatches::value_type{{8, 9, 10}, std::nullopt}));
    }
  }
}

TEST(DataShard, WorkersOfOtherProcessesHaveOtherSeeds) {
  std::set<int64_t> seeds;
  for (int64_t rank = 0; rank < 3; ++rank) {
    const DataLoader loader({.dataset = from_tensors({{"row", torch::arange(24)}}),
                             .batch_size = 2,
                             .collator =
                                 [](const std::vector<Example>&) {
                                   return Batch{{"seed", torch::full({1}, worker_info()->seed)}};
                                 },
                             .num_workers = 2,
                             .seed = 42,
                             .shard = {.rank = rank, .world = 3}});
    auto pass = loader.iterate(0);
    while (const auto batch = pass.next()) {
      const auto seed = (*batch)["seed"].item<int64_t>();
      EXPECT_EQ((seed - 42) / 2, rank);
      seeds.insert(seed);
    }
  }
  EXPECT_GE(seeds.size(), 3U);  // of each process at least one worker
}

}  // namespace
}  // namespace gradus
