#include <ATen/Context.h>
#include <gradus/data/data_loader.h>
#include <gradus/data/sampler.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gradus {
namespace {

using Rows = std::vector<int64_t>;

std::vector<Rows> row_numbers_of(BatchIterator iterator) {
  std::vector<Rows> result;
  while (const auto batch = iterator.next()) {
    const auto rows = (*batch)["row"].contiguous();
    result.emplace_back(rows.const_data_ptr<int64_t>(),
                        rows.const_data_ptr<int64_t>() + rows.numel());
  }
  return result;
}

// The numbers are those of torch.utils.data.RandomSampler(range(10)) after torch.manual_seed(7).
TEST(GlobalRandomSampler, IsTorchsRandomSamplerWithoutAGenerator) {
  at::manual_seed(7);
  const auto sampler = global_random_sampler(10);
  EXPECT_EQ(sampler->order(0), (Rows{3, 0, 1, 9, 4, 7, 2, 5, 6, 8}));
  EXPECT_EQ(sampler->order(0), (Rows{3, 2, 7, 8, 6, 1, 5, 9, 0, 4}));
  at::manual_seed(7);
  Rows opened(10);
  sampler->open(0)->read(0, opened);
  EXPECT_EQ(opened, (Rows{3, 0, 1, 9, 4, 7, 2, 5, 6, 8}));
}

TEST(GlobalRandomSampler, APassGoesOnFromItsStateWhateverTheGeneratorGives) {
  for (const int64_t workers : {0, 2}) {
    at::manual_seed(3);
    const DataLoader loader({.dataset = from_tensors({{"row", torch::arange(20)}}),
                             .batch_size = 3,
                             .sampler = global_random_sampler(20),
                             .num_workers = workers});
    auto iterator = loader.iterate(1);
    const auto first = (*iterator.next())["row"].clone();
    for (int i = 1; i < 3; ++i) iterator.next();
    const auto state = nlohmann::json::parse(iterator.state().dump());
    const auto remaining = row_numbers_of(std::move(iterator));
    at::manual_seed(99);
    const auto before = torch::rand({1}).item<double>();
    at::manual_seed(99);
    auto resumed = loader.iterate(1, 3, state);
    EXPECT_EQ(torch::rand({1}).item<double>(), before) << "a pass that goes on draws nothing";
    EXPECT_EQ(row_numbers_of(std::move(resumed)), remaining);
    EXPECT_FALSE((*loader.iterate(1).next())["row"].equal(first)) << "a new pass, a new order";
  }
}

}  // namespace
}  // namespace gradus
