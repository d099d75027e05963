#include "engine/mean_loss.h"

#include <gtest/gtest.h>

namespace gradus {
namespace {

// Made by numpy: the mean of the batches' losses, each repeated once per row.
TEST(MeanLoss, IsNumpysToTheLastBit) {
  struct Case {
    int batches, rows, last_rows;
    double in_float, in_double, in_half;
  };
  for (const auto& c : {Case{1, 5, 5, 2.5, 2.5, 2.5},
                        Case{4, 3, 2, 3.1186742782592773, 3.1186742132360283, 3.119140625},
                        Case{9, 7, 7, 3.0665884017944336, 3.0665886402130127, 3.06640625},
                        Case{40, 8, 3, 2.991490602493286, 2.9914903549920946, 2.9921875},
                        Case{1500, 16, 1, 3.001286268234253, 3.0012864313747873, 3.001953125}}) {
    for (const auto& [type, expected] : {std::pair(torch::kFloat, c.in_float),
                                         {torch::kDouble, c.in_double},
                                         {torch::kHalf, c.in_half}}) {
      MeanLoss loss;
      for (int i = 0; i < c.batches; ++i)
        loss.add(torch::tensor(2.5F + float(i * 7919 % 1000) / 997.0F).to(type),
                 i + 1 < c.batches ? c.rows : c.last_rows);
      EXPECT_EQ(loss.over_rows(), expected) << c.batches << " batches of " << type;
      EXPECT_NEAR(loss.over_tokens(), c.in_double, type == torch::kHalf ? 1e-3 : 1e-12);
    }
  }
  EXPECT_TRUE(MeanLoss().empty());
}

}  // namespace
}  // namespace gradus
