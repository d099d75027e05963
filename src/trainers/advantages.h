#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

namespace gradus {

/// How GRPO makes advantages of rewards; the members are options of `GRPOConfig`.
struct GroupScaling {
  int64_t num_generations = 1;
  std::string scale_rewards = "group";
  bool normalize_first = false;  ///< multi_objective_aggregation is "normalize_then_sum".
};

/// Advantages of completions.
struct Advantages {
  torch::Tensor values;             ///< One for each completion; 0 where no reward applies.
  torch::Tensor is_deviation_zero;  ///< Bool: the rewards of a prompt are all the same.
};

/// The weighted sum of the rewards (completions, rewards) of each completion, without those that do
/// not apply; NaN where none does.
torch::Tensor weighted_rewards(const torch::Tensor& rewards, const std::vector<double>& weights);

/// Advantages within the group of a prompt: the distance from its mean, scaled.
Advantages group_advantages(const torch::Tensor& rewards, const std::vector<double>& weights,
                            const GroupScaling& scaling);

/// Advantages of RLOO: the distance from the mean of the other completions of the prompt. `totals`
/// has one reward for each completion.
Advantages leave_one_out_advantages(const torch::Tensor& totals, int64_t num_generations,
                                    bool normalize);

}  // namespace gradus
