#include "train/elastic_order.h"

#include <algorithm>

namespace gradus {
namespace {

// What a mean loss is taken over: the labels that count, else the rows.
int64_t items_of(const Batch& batch) {
  const auto* labels = batch.find("labels");
  return labels != nullptr ? labels->ne(-100).sum().item<int64_t>() : batch.rows();
}

Batch rows_of(const Batch& whole, int64_t begin, int64_t end) {
  const auto rows = whole.rows();
  Batch part = whole;
  for (const auto& [name, value] : whole)
    if (value.defined() && value.dim() > 0 && value.size(0) == rows)
      part.set(name, value.narrow(0, begin, end - begin));
  return part;
}

}  // namespace

ElasticOrder::ElasticOrder(int64_t rank, int64_t world, torch::Device device)
    : rank_(rank),
      world_(world),
      weight_(torch::ones({}, torch::dtype(torch::kFloat).device(device))) {}

Batch ElasticOrder::take(const Batch& whole) {
  const auto rows = whole.rows();
  const auto begin = rows * rank_ / world_, end = rows * (rank_ + 1) / world_;
  counts_ = begin < end;
  auto own = counts_ ? rows_of(whole, begin, end) : rows_of(whole, 0, std::min<int64_t>(rows, 1));
  double weight = double(world_);
  if (!loss_is_divided_.value_or(true)) {
    const auto all = items_of(whole);
    weight *= all > 0 ? double(items_of(own)) / double(all) : double(end - begin) / double(rows);
  }
  weight_.fill_(counts_ ? weight : 0.0);
  return own;
}

// Rows without an item have no mean: not a number.
torch::Tensor ElasticOrder::weighed(const torch::Tensor& loss) const {
  return torch::where(weight_ > 0, loss * weight_, torch::zeros_like(loss));
}

}  // namespace gradus
