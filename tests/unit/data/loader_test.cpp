#include <gradus/core/error.h>
#include <gradus/data/collators.h>
#include <gradus/data/data_loader.h>
#include <gradus/data/streams.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <future>
#include <set>

namespace gradus {
namespace {

using Rows = std::vector<int64_t>;

std::shared_ptr<Dataset> numbered(int64_t rows) {
  return from_tensors({{"row", torch::arange(rows)}});
}

Rows rows_of(const Batch& batch) {
  const auto rows = batch["row"].flatten();
  return {rows.const_data_ptr<int64_t>(), rows.const_data_ptr<int64_t>() + rows.numel()};
}

std::vector<Rows> rest(BatchIterator iterator) {
  std::vector<Rows> result;
  while (auto batch = iterator.next()) result.push_back(rows_of(*batch));
  return result;
}

/// Rows are made one by one; row `bad` throws.
struct Slow : Dataset {
  explicit Slow(int64_t rows, int64_t bad = -1) : rows(rows), bad(bad) {}
  int64_t size() const override { return rows; }
  Example get(int64_t index) const override {
    ++reads;
    if (index == bad) throw std::runtime_error("the disk is gone");
    return {{"row", index}};
  }
  int64_t rows;
  int64_t bad;
  mutable std::atomic<int64_t> reads = 0;
};

/// Counts to `rows` and knows where it stands, unless `with_state` is off.
struct Counter : IterableDataset {
  explicit Counter(int64_t rows, bool with_state = true) : rows(rows), with_state(with_state) {}
  std::optional<Example> next() override {
    if (at >= rows) return std::nullopt;
    ++reads;
    return Example{{"row", at++}};
  }
  void reset(int64_t) override { at = 0; }
  nlohmann::json save_state() const override {
    return with_state ? nlohmann::json(at) : nlohmann::json();
  }
  void load_state(const nlohmann::json& state) override { at = state.get<int64_t>(); }
  int64_t rows;
  bool with_state;
  int64_t at = 0;
  int64_t reads = 0;
};

TEST(DataLoader, KnowsTheBatchesOfAStreamThatKnowsItsRows) {
  struct Sized : Counter {
    using Counter::Counter;
    std::optional<int64_t> size() const override { return rows; }
  };
  const auto loader = [](DatasetRef stream, bool drop_last = false, DataShard shard = {}) {
    return DataLoader(
        {.dataset = std::move(stream), .batch_size = 4, .drop_last = drop_last, .shard = shard});
  };
  const auto stream = std::make_shared<Sized>(10);
  EXPECT_EQ(loader(stream).size(), 3);
  EXPECT_EQ(loader(stream).num_examples(), 10);
  EXPECT_EQ(loader(stream, /*drop_last=*/true).size(), 2);
  EXPECT_EQ(loader(stream, false, {.rank = 1, .world = 2}).size(), 2);
  EXPECT_EQ(loader(stream, false, {.rank = 1, .world = 2, .split_batches = true}).size(), 3);
  EXPECT_EQ(loader(map_stream(stream, [](const Example& row) { return row; })).size(), 3);
  EXPECT_EQ(loader(std::make_shared<Counter>(10)).size(), std::nullopt);
  EXPECT_EQ(loader(std::make_shared<Counter>(10)).num_examples(), std::nullopt);
}

TEST(RandomSampler, IsTorchRandperm) {
  for (const int64_t rows : {0, 1, 2, 10, 623, 624, 625, 626, 1247, 1249, 1'300'000}) {
    for (const uint64_t seed :
         {0ull, 42ull, 4294967295ull, 4294967296ull + 7, 18446744073709551615ull}) {
      const auto expected = at::randperm(rows, at::detail::createCPUGenerator(seed), at::kLong);
      const auto order = random_sampler(rows, static_cast<int64_t>(seed))->order(0);
      EXPECT_TRUE(std::equal(order.begin(), order.end(), expected.const_data_ptr<int64_t>()))
          << rows << " " << seed;
    }
  }
  EXPECT_EQ(random_sampler(10, 42)->order(0), (Rows{2, 6, 1, 8, 4, 5, 0, 9, 3, 7}));
  EXPECT_EQ(random_sampler(100, 40)->order(2), random_sampler(100, 42)->order(0));
}

TEST(LengthGroupedSampler, BeginsWithTheLongest) {  // peer's test_group_by_length
  Rows lengths(100);
  for (size_t i = 0; i < 100; ++i) lengths[i] = static_cast<int64_t>(i * 37 % 100);
  lengths[50] = 999;
  const auto order = length_grouped_sampler(lengths, 4, 1)->order(0);
  EXPECT_EQ(order.front(), 50);
  EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 100u);
  EXPECT_EQ(distributed_length_grouped_sampler(lengths, 4, 1, 0, 2)->order(0).front(), 50);
  EXPECT_THROW(column_lengths(*numbered(3), "input_ids"), Error);
  EXPECT_EQ(column_lengths(*from_examples({{{"input_ids", Rows{1, 2}}}, {{"input_ids", Rows{}}}})),
            (Rows{2, 0}));
}

std::shared_ptr<BatchSampler> rebalanced(int64_t rows) {
  Rows lengths(static_cast<size_t>(rows));
  for (size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = i % 10 == 0 ? 900 : 1 + static_cast<int64_t>(i * 37 % 100);
  return batch_rebalance_sampler(
      lengths, {.effective_batch_size = 16, .gradient_accumulation_steps = 4, .drop_last = false});
}

TEST(BatchRebalanceSampler, GivesLongRowsSmallBatches) {
  const auto batches =
      rest(DataLoader({.dataset = numbered(160), .batch_sampler = rebalanced(160)}).iterate(0));
  ASSERT_EQ(batches.size(), 40u);
  std::set<int64_t> seen;
  size_t smallest = 160, largest = 0;
  for (const auto& batch : batches) {
    seen.insert(batch.begin(), batch.end());
    smallest = std::min(smallest, batch.size());
    largest = std::max(largest, batch.size());
  }
  EXPECT_EQ(seen.size(), 160u) << "every row once";
  EXPECT_EQ(smallest, 1u);
  EXPECT_GE(largest, 8u);
  EXPECT_NE(
      batches,
      rest(DataLoader({.dataset = numbered(160), .batch_sampler = rebalanced(160)}).iterate(1)));
}

TEST(BatchRebalanceSampler, GoesOnAnywhereAndForAnyNumberOfWorkers) {
  const auto all =
      rest(DataLoader({.dataset = numbered(150), .batch_sampler = rebalanced(150)}).iterate(3));
  for (const int64_t workers : {0, 3})
    for (const int64_t first : {0, 1, 6, 20, 39, 40}) {
      auto dataset = std::make_shared<Slow>(150);
      EXPECT_EQ(
          rest(DataLoader(
                   {.dataset = dataset, .batch_sampler = rebalanced(150), .num_workers = workers})
                   .iterate(3, first)),
          std::vector<Rows>(all.begin() + first, all.end()))
          << first;
    }
}

TEST(BatchRebalanceSampler, RefusesStepsWithoutARowForEveryBatch) {
  try {
    batch_rebalance_sampler(
        {1, 2, 3}, {.effective_batch_size = 3, .gradient_accumulation_steps = 2, .world = 2});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-DATA-8");
    EXPECT_EQ(error.message(),
              "cannot make a batch rebalance sampler with 3 rows per step, 2 accumulation steps, "
              "rank 0 of 2");
  }
}

TEST(DataLoader, CountsBatchesAsThePeer) {  // peer's test_train_and_eval_dataloaders
  const auto batches = [](int64_t rows, int64_t size, bool drop_last) {
    return *DataLoader({.dataset = numbered(rows), .batch_size = size, .drop_last = drop_last})
                .size();
  };
  EXPECT_EQ(batches(66, 16, false), 5);
  EXPECT_EQ(batches(74, 32, false), 3);
  EXPECT_EQ(batches(66, 16, true), 4);
  EXPECT_EQ(batches(74, 32, true), 2);
  EXPECT_EQ(batches(128, 32, false), 4);
  EXPECT_EQ(DataLoader({.dataset = numbered(66), .batch_size = 16}).num_examples(), 66);
  EXPECT_EQ(DataLoader({.dataset = std::make_shared<Counter>(5)}).size(), std::nullopt);
}

TEST(DataLoader, RefusesOptionsThatMakeNoSense) {
  const auto message = [](DataLoaderOptions options) {
    try {
      DataLoader loader(std::move(options));
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "G-DATA-8");
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.message();
    }
    return std::string("no error");
  };
  EXPECT_EQ(message({}), "a data loader needs a data set");
  EXPECT_EQ(message({.dataset = numbered(1), .batch_size = 0}),
            "batch_size is 0, expected at least 1");
  EXPECT_EQ(message({.dataset = numbered(1), .num_workers = -1}),
            "num_workers is -1, expected 0 or more");
  EXPECT_EQ(message({.dataset = numbered(1), .prefetch_factor = 2}),
            "prefetch_factor is set without workers");
  EXPECT_EQ(message({.dataset = numbered(1), .num_workers = 1, .prefetch_factor = 0}),
            "prefetch_factor is 0, expected at least 1");
  EXPECT_EQ(message({.dataset = numbered(1), .persistent_workers = true}),
            "persistent_workers is set without workers");
  EXPECT_EQ(message({.dataset = std::make_shared<Counter>(3), .sampler = sequential_sampler(3)}),
            "a sampler is set for an iterable data set");
  EXPECT_EQ(message({.dataset = std::make_shared<Counter>(3), .batch_sampler = rebalanced(3)}),
            "a batch sampler is set beside an iterable data set");
  EXPECT_EQ(message({.dataset = numbered(3),
                     .sampler = sequential_sampler(3),
                     .batch_sampler = rebalanced(3)}),
            "a batch sampler is set beside a sampler");
  EXPECT_EQ(
      message({.dataset = numbered(3), .batch_sampler = rebalanced(3), .shard = {.world = 2}}),
      "a batch sampler is set beside a shard of the data");
  EXPECT_EQ(message({.dataset = numbered(1), .shard = {.rank = 2, .world = 2}}),
            "rank 2 of 2 processes");
  EXPECT_EQ(
      message(
          {.dataset = numbered(1), .batch_size = 3, .shard = {.world = 2, .split_batches = true}}),
      "split_batches with a batch size of 3 for 2 processes");
}

TEST(TensorLoader, GivesColumnsTogether) {
  const auto x = torch::arange(20).view({10, 2});
  auto loader =
      tensor_loader({{"x", x}, {"y", x.sum(1)}}, {.batch_size = 4, .shuffle = true, .seed = 1});
  int64_t rows = 0;
  auto iterator = loader.iterate(0);
  while (auto batch = iterator.next()) {
    EXPECT_TRUE(at::equal(batch->at("x").sum(1), batch->at("y")));
    rows += batch->rows();
  }
  EXPECT_EQ(rows, 10);
  EXPECT_EQ(iterator.position(), 3);
  EXPECT_FALSE(iterator.next().has_value());
}

struct Setting {
  std::string name;
  std::function<DataLoaderOptions()> make;
};

std::vector<Setting> settings() {
  std::vector<Setting> result;
  const auto add = [&](std::string name, std::function<DataLoaderOptions()> make) {
    for (const int64_t workers : {0, 1, 3}) {
      result.push_back({name + "_" + std::to_string(workers), [make, workers] {
                          auto options = make();
                          options.num_workers = workers;
                          options.persistent_workers = workers == 3;
                          if (workers > 0) options.prefetch_factor = workers;
                          return options;
                        }});
    }
  };
  const Rows lengths{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6};
  add("sequential", [] { return DataLoaderOptions{.dataset = numbered(23), .batch_size = 2}; });
  add("random", [] {
    return DataLoaderOptions{
        .dataset = std::make_shared<Slow>(23), .batch_size = 2, .sampler = random_sampler(23, 5)};
  });
  add("drop_last", [] {
    return DataLoaderOptions{.dataset = numbered(23),
                             .batch_size = 2,
                             .sampler = random_sampler(23, 5),
                             .drop_last = true};
  });
  add("grouped", [=] {
    return DataLoaderOptions{
        .dataset = numbered(23), .batch_size = 2, .sampler = length_grouped_sampler(lengths, 4, 3)};
  });
  add("grouped_distributed", [=] {
    return DataLoaderOptions{.dataset = numbered(23),
                             .batch_size = 2,
                             .sampler = distributed_length_grouped_sampler(lengths, 2, 3, 1, 2)};
  });
  add("repeat", [] {
    return DataLoaderOptions{
        .dataset = numbered(23),
        .batch_size = 4,
        .sampler = repeat_sampler(
            23, {.mini_repeat_count = 2, .batch_size = 3, .repeat_count = 2, .seed = 9})};
  });
  add("shard", [] {
    return DataLoaderOptions{.dataset = numbered(23),
                             .batch_size = 2,
                             .sampler = random_sampler(23, 5),
                             .shard = {.rank = 1, .world = 3}};
  });
  add("iterable",
      [] { return DataLoaderOptions{.dataset = std::make_shared<Counter>(23), .batch_size = 2}; });
  add("iterable_without_state", [] {
    return DataLoaderOptions{.dataset = std::make_shared<Counter>(23, false), .batch_size = 2};
  });
  add("iterable_shard", [] {
    return DataLoaderOptions{.dataset = std::make_shared<Counter>(23),
                             .batch_size = 2,
                             .shard = {.rank = 1, .world = 2}};
  });
  add("shuffled_stream", [] {
    return DataLoaderOptions{.dataset = shuffle_stream(std::make_shared<Counter>(23), 7, 3),
                             .batch_size = 2};
  });
  add("filtered_stream", [] {
    return DataLoaderOptions{
        .dataset = filter_stream(std::make_shared<Counter>(23),
                                 [](const Example& row) { return row["row"].integer() % 3 != 0; }),
        .batch_size = 2};
  });
  return result;
}

class Resume : public testing::TestWithParam<Setting> {};

TEST_P(Resume, GoesOnWithTheRemainingBatches) {
  const auto whole = rest(DataLoader(GetParam().make()).iterate(1));
  ASSERT_GE(whole.size(), 3u);
  for (size_t stop = 0; stop <= whole.size(); ++stop) {
    nlohmann::json state;
    int64_t position = 0;
    {
      auto iterator = DataLoader(GetParam().make()).iterate(1);
      for (size_t i = 0; i < stop; ++i) EXPECT_EQ(rows_of(*iterator.next()), whole[i]);
      state = nlohmann::json::parse(iterator.state().dump());
      position = iterator.position();
    }
    EXPECT_EQ(position, static_cast<int64_t>(stop));
    const std::vector<Rows> remaining(whole.begin() + static_cast<ptrdiff_t>(stop), whole.end());
    EXPECT_EQ(rest(DataLoader(GetParam().make()).iterate(1, position, state)), remaining)
        << "stopped after " << stop;
    EXPECT_EQ(rest(DataLoader(GetParam().make()).iterate(1, position)), remaining)
        << "stopped after " << stop << ", without state";
  }
}

INSTANTIATE_TEST_SUITE_P(DataLoader, Resume, testing::ValuesIn(settings()),
                         [](const auto& parameter) { return parameter.param.name; });

TEST(DataLoader, ReadsNothingAgainWhenAStreamIsResumed) {
  auto first = std::make_shared<Counter>(1000);
  const DataLoader loader({.dataset = first, .batch_size = 4, .num_workers = 2});
  nlohmann::json state;
  {
    auto iterator = loader.iterate(0);
    for (int i = 0; i < 100; ++i) iterator.next();
    state = iterator.state();
  }
  auto second = std::make_shared<Counter>(1000);
  auto iterator = DataLoader({.dataset = second, .batch_size = 4}).iterate(0, 100, state);
  EXPECT_EQ(rows_of(*iterator.next()), (Rows{400, 401, 402, 403}));
  EXPECT_EQ(second->reads, 4);
}

TEST(DataLoader, SkipsRowsWithoutReadingThem) {
  auto dataset = std::make_shared<Slow>(1'000'000);
  auto iterator =
      DataLoader({.dataset = dataset, .batch_size = 8, .sampler = random_sampler(1'000'000, 1)})
          .iterate(0, 124'999);
  EXPECT_EQ(iterator.next()->rows(), 8);
  EXPECT_FALSE(iterator.next().has_value());
  EXPECT_EQ(dataset->reads, 8);
}

TEST(DataLoader, GivesTheSameBatchesForAnyNumberOfWorkers) {
  const auto collator = [](std::vector<Example> rows) {
    auto batch = default_data_collator(std::move(rows));
    const auto& context = collate_context();
    batch.set("context", torch::tensor({context.seed, context.epoch, context.batch_index}));
    return batch;
  };
  for (const int64_t workers : {0, 1, 4}) {
    auto iterator = DataLoader({.dataset = std::make_shared<Slow>(40),
                                .batch_size = 3,
                                .collator = collator,
                                .num_workers = workers,
                                .seed = 11})
                        .iterate(2);
    for (int64_t number = 0; number < 14; ++number) {
      const auto batch = iterator.next();
      ASSERT_TRUE(batch.has_value());
      EXPECT_EQ(batch->at("row")[0].item<int64_t>(), 3 * number);
      EXPECT_TRUE(
          at::equal(batch->at("context"), torch::tensor({int64_t{11}, int64_t{2}, number})));
    }
    EXPECT_FALSE(iterator.next().has_value());
    EXPECT_EQ(collate_context().seed, 0);
  }
}

TEST(DataLoader, StaysWithinItsPrefetch) {
  auto dataset = std::make_shared<Slow>(1000);
  auto iterator =
      DataLoader({.dataset = dataset, .batch_size = 1, .num_workers = 2, .prefetch_factor = 3})
          .iterate(0);
  for (int64_t given = 1; given <= 50; ++given) {
    iterator.next();
    EXPECT_LE(dataset->reads, given + 6);
  }
}

TEST(DataLoader, GivesEveryBatchOnceOutOfOrder) {
  // The first batch waits until a later one was given, so order cannot be kept.
  std::promise<void> later_given;
  const auto wait = later_given.get_future().share();
  const auto dataset = std::make_shared<Slow>(12)->map([wait](const Example& row) {
    if (row["row"].integer() == 0) wait.wait();
    return row;
  });
  const DataLoaderOptions options{
      .dataset = dataset, .batch_size = 2, .num_workers = 2, .in_order = false};
  std::multiset<Rows> seen;
  nlohmann::json state;
  {
    auto iterator = DataLoader(options).iterate(0);
    seen.insert(rows_of(*iterator.next()));
    seen.insert(rows_of(*iterator.next()));
    EXPECT_FALSE(seen.contains(Rows{0, 1}));
    EXPECT_EQ(iterator.position(), 2);
    state = nlohmann::json::parse(iterator.state().dump());
    EXPECT_EQ(state.at("next"), 0);
    later_given.set_value();
  }
  for (const auto& batch : rest(DataLoader(options).iterate(0, 2, state))) seen.insert(batch);
  EXPECT_EQ(seen, (std::multiset<Rows>{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}}));
}

TEST(DataLoader, ARowMayBeMadeOfAnotherLoadersBatch) {
  struct Outer : Dataset {
    int64_t size() const override { return 6; }
    Example get(int64_t index) const override {
      const auto inner =
          DataLoader({.dataset = from_tensors({{"row", torch::arange(100)}}), .batch_size = 10});
      return {{"row", inner.iterate(0, index).next()->at("row")[0].item<int64_t>()}};
    }
  };
  auto iterator = DataLoader({.dataset = std::make_shared<Outer>(), .batch_size = 3}).iterate(0);
  EXPECT_EQ(rows_of(*iterator.next()), (Rows{0, 10, 20}));
  EXPECT_EQ(rows_of(*iterator.next()), (Rows{30, 40, 50}));
}

TEST(DataLoader, NamesTheRowThatCannotBeRead) {
  for (const int64_t workers : {0, 2}) {
    auto iterator =
        DataLoader(
            {.dataset = std::make_shared<Slow>(20, 13), .batch_size = 4, .num_workers = workers})
            .iterate(0);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(iterator.next().has_value());
    try {
      iterator.next();
      FAIL() << "no exception";
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "G-DATA-5");
      EXPECT_EQ(error.message(), "row 13 of the data set (batch 3): the disk is gone");
    }
    EXPECT_FALSE(iterator.next().has_value());
  }
}

TEST(DataLoader, NamesTheBatchThatCannotBeCollated) {
  const auto rows = from_examples({{{"row", Rows{1}}}, {{"row", Rows{1, 2}}}});
  for (const int64_t workers : {0, 2}) {
    auto iterator =
        DataLoader({.dataset = rows, .batch_size = 2, .num_workers = workers}).iterate(0);
    try {
      iterator.next();
      FAIL() << "no exception";
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "G-DATA-7");
      EXPECT_EQ(error.message(),
                "batch 0: column 'row' cannot be stacked: row 1 of the batch has 2 values, the "
                "first row 1");
    }
  }
}

TEST(DataLoader, GivesWhatAStreamHeldBeforeItFailed) {
  struct Failing : Counter {
    using Counter::Counter;
    std::optional<Example> next() override {
      if (at == 5)
        throw Error("G-SRC-1", ErrorKind::io, "cannot read part-2.jsonl", "Look at the disk.");
      return Counter::next();
    }
  };
  for (const int64_t workers : {0, 2}) {
    auto iterator =
        DataLoader(
            {.dataset = std::make_shared<Failing>(20), .batch_size = 2, .num_workers = workers})
            .iterate(0);
    EXPECT_EQ(rows_of(*iterator.next()), (Rows{0, 1}));
    EXPECT_EQ(rows_of(*iterator.next()), (Rows{2, 3}));
    try {
      iterator.next();
      FAIL() << "no exception";
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "G-SRC-1");
      EXPECT_EQ(error.message(),
                "row 5 of the iterable data set (batch 2): cannot read part-2.jsonl");
      EXPECT_EQ(error.advice(), "Look at the disk.");
    }
    EXPECT_FALSE(iterator.next().has_value());
  }
}

TEST(DataLoader, CanBeLeftAtAnyMoment) {
  for (int round = 0; round < 50; ++round) {
    const DataLoader loader({.dataset = std::make_shared<Slow>(100),
                             .batch_size = 1,
                             .num_workers = 3,
                             .persistent_workers = round % 2 == 0});
    auto iterator = loader.iterate(round);
    for (int i = 0; i < round; ++i) ASSERT_TRUE(iterator.next().has_value());
    auto other = loader.iterate(round);  // two passes over one loader do not disturb each other
    EXPECT_EQ(rows_of(*other.next()), (Rows{0}));
    iterator = std::move(other);
    EXPECT_EQ(rows_of(*iterator.next()), (Rows{1}));
  }
}

TEST(DataLoader, TellsWorkersWhoTheyAre) {
  std::mutex mutex;
  std::set<int64_t> seeds;
  const auto dataset = std::make_shared<Slow>(64)->map([&](const Example& row) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(worker_info()->num_workers, 2);
    EXPECT_EQ(worker_info()->seed, 40 + worker_info()->id);
    seeds.insert(worker_info()->seed);
    return row;
  });
  rest(DataLoader({.dataset = dataset, .num_workers = 2, .seed = 40}).iterate(0));
  EXPECT_FALSE(seeds.empty());
  EXPECT_FALSE(worker_info().has_value());
}

TEST(DataLoader, ReadsAUsersBatchSource) {
  struct Source : BatchSource {
    explicit Source(bool with_state) : with_state(with_state) {}
    std::optional<Batch> next() override {
      if (at == 5) return std::nullopt;
      ++made;
      return Batch{{"row", torch::tensor({10 * epoch + at++})}};
    }
    void reset(int64_t pass) override {
      epoch = pass;
      at = 0;
    }
    std::optional<int64_t> size() const override { return 5; }
    nlohmann::json save_state() const override {
      return with_state ? nlohmann::json(at) : nlohmann::json();
    }
    void load_state(const nlohmann::json& state) override { at = state.get<int64_t>(); }
    bool with_state;
    int64_t epoch = 0;
    int64_t at = 0;
    int64_t made = 0;
  };
  for (const bool with_state : {true, false}) {
    auto source = std::make_shared<Source>(with_state);
    const DataLoader loader(source);
    EXPECT_EQ(loader.size(), 5);
    auto iterator = loader.iterate(1);
    EXPECT_EQ(rows_of(*iterator.next()), (Rows{10}));
    EXPECT_EQ(rows_of(*iterator.next()), (Rows{11}));
    auto again = std::make_shared<Source>(with_state);
    EXPECT_EQ(rest(DataLoader(again).iterate(1, 2, iterator.state())),
              (std::vector<Rows>{{12}, {13}, {14}}));
    EXPECT_EQ(again->made, with_state ? 3 : 5);
  }
}

}  // namespace
}  // namespace gradus
