#include "trainers/advantages.h"

#include <ATen/ops/isclose.h>
#include <ATen/ops/nanmean.h>
#include <ATen/ops/nansum.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "trainers/nan_statistics.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr double kLeastDeviation = 1e-4;

Tensor weight_row(const std::vector<double>& weights, const Tensor& like) {
  return torch::tensor(weights, torch::kFloat).to(like.device()).unsqueeze(0);
}

Tensor deviation_or_zero(const Tensor& values, std::optional<int64_t> dim, bool several) {
  if (!several)
    return dim ? at::zeros_like(values.select(*dim, 0)) : torch::zeros({}, values.options());
  return dim ? nan_deviation(values, at::IntArrayRef{*dim}) : nan_deviation(values);
}

Advantages finished(const Tensor& values, const Tensor& deviation) {
  return {.values = values.nan_to_num(0.0),
          .is_deviation_zero = at::isclose(deviation, at::zeros_like(deviation))};
}

}  // namespace

Tensor weighted_rewards(const Tensor& rewards, const std::vector<double>& weights) {
  const auto sums = (rewards * weight_row(weights, rewards)).nansum(1);
  return sums.masked_fill(rewards.isnan().all(1), std::numeric_limits<double>::quiet_NaN());
}

Advantages group_advantages(const Tensor& rewards, const std::vector<double>& weights,
                            const GroupScaling& scaling) {
  const auto size = scaling.num_generations;
  if (scaling.normalize_first) {
    const auto grouped = rewards.view({-1, size, rewards.size(1)});
    const auto deviation = deviation_or_zero(grouped, 1, size > 1).unsqueeze(1);
    const auto scaled = (grouped - grouped.nanmean(1, true)) / (deviation + kLeastDeviation);
    const auto totals =
        (scaled.view({-1, rewards.size(1)}) * weight_row(weights, rewards))
            .nansum(1)
            .masked_fill(rewards.isnan().all(1), std::numeric_limits<double>::quiet_NaN());
    const auto all = deviation_or_zero(totals, std::nullopt, totals.numel() > 1).expand_as(totals);
    return finished((totals - totals.nanmean()) / (all + kLeastDeviation), all);
  }
  const auto totals = weighted_rewards(rewards, weights);
  const auto grouped = totals.view({-1, size});
  const auto mean = grouped.nanmean(1).repeat_interleave(size);
  const auto deviation =
      scaling.scale_rewards == "batch"
          ? deviation_or_zero(totals, std::nullopt, totals.numel() > 1).expand_as(totals)
          : deviation_or_zero(grouped, 1, size > 1).repeat_interleave(size);
  auto advantages = totals - mean;
  if (scaling.scale_rewards != "none") advantages = advantages / (deviation + kLeastDeviation);
  return finished(advantages, deviation);
}

Advantages leave_one_out_advantages(const Tensor& totals, int64_t num_generations, bool normalize) {
  const auto grouped = totals.view({-1, num_generations});
  const bool several = num_generations > 1;
  const auto deviation = deviation_or_zero(grouped, 1, several);
  const auto count = grouped.isnan().logical_not().sum(1, true);
  const auto others = (grouped.nansum(1, true) - grouped) / (count - 1);
  auto advantages = several ? totals - others.view(-1) : at::zeros_like(totals);
  if (normalize)
    advantages =
        (advantages - advantages.nanmean()) / (nan_deviation(advantages) + kLeastDeviation);
  return finished(advantages, deviation);
}

}  // namespace gradus
