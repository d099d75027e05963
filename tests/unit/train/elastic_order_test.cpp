#include "train/elastic_order.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gradus {
namespace {

Batch batch_of(int64_t rows) {
  const auto x = torch::arange(rows * 2, torch::kFloat).view({rows, 2});
  auto labels = torch::arange(rows * 3, torch::kLong).view({rows, 3});
  labels.slice(1, 2).masked_fill_(torch::arange(rows).remainder(2).eq(0).unsqueeze(1), -100);
  return {{"x", x}, {"labels", labels}, {"scale", torch::tensor(2.0)}};
}

// A mean over the labels that count, as most losses are.
torch::Tensor mean_loss(const Batch& batch) {
  const auto labels = batch["labels"];
  const auto counts = labels.ne(-100);
  return (labels.to(torch::kFloat) * counts).sum() / counts.sum();
}

TEST(ElasticOrder, LossesOfThePartsAreThatOfTheWhole) {
  for (const int64_t rows : {1, 2, 5, 8})
    for (const int64_t world : {1, 2, 3, 4, 8}) {
      const auto whole = batch_of(rows);
      double total = 0;
      int64_t taken = 0;
      for (int64_t rank = 0; rank < world; ++rank) {
        ElasticOrder order(rank, world, torch::kCPU);
        order.set_loss_is_divided(false);
        const auto own = order.take(whole);
        EXPECT_EQ(own["scale"].item<float>(), 2);
        EXPECT_GE(own.rows(), 1);
        if (order.counts()) {
          EXPECT_TRUE(torch::equal(own["x"], whole["x"].narrow(0, taken, own.rows())));
          taken += own.rows();
        }
        total += order.weighed(mean_loss(own)).item<double>() / double(world);
      }
      EXPECT_EQ(taken, rows) << "every row once";
      EXPECT_NEAR(total, mean_loss(whole).item<double>(), 1e-5) << rows << " rows, " << world;
    }
}

TEST(ElasticOrder, LossesThatAreDividedByTheItemsOfAllOnlyAddUp) {
  const auto whole = batch_of(3);
  double total = 0;
  for (int64_t rank = 0; rank < 4; ++rank) {
    ElasticOrder order(rank, 4, torch::kCPU);
    order.set_loss_is_divided(true);
    total += order.weighed(order.take(whole)["x"].sum() / 7).item<double>() / 4;
  }
  EXPECT_NEAR(total, whole["x"].sum().item<double>() / 7, 1e-5);
}

TEST(ElasticOrder, RowsWithoutAnItemCountNothing) {
  const Batch whole{{"labels", torch::tensor({{-100, -100}, {1, 3}})}};
  double total = 0;
  for (int64_t rank = 0; rank < 2; ++rank) {
    ElasticOrder order(rank, 2, torch::kCPU);
    order.set_loss_is_divided(false);
    const auto loss = mean_loss(order.take(whole));
    EXPECT_EQ(std::isnan(loss.item<double>()), rank == 0);
    total += order.weighed(loss).item<double>() / 2;
  }
  EXPECT_EQ(total, 2);
}

}  // namespace
}  // namespace gradus
