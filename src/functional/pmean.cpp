#include <gradus/functional/pmean.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gradus/core/error.h>

#include <algorithm>
#include <bit>

#include "functional/processes.h"

namespace gradus::functional {
namespace {

constexpr auto kTimeout = std::chrono::minutes(30);

bool have_one_type(const std::vector<torch::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const torch::Tensor& tensor) {
    return tensor.scalar_type() == tensors.front().scalar_type();
  });
}

/// Calls `exchange` with all values in one tensor, and gives back what it has made of them.
template <class Exchange>
Params exchanged(const Params& values, const Exchange& exchange) {
  const at::NoGradGuard no_grad;
  std::vector<torch::Tensor> results;
  if (values.empty()) return values;
  if (!have_one_type(values.values())) {
    for (const auto& value : values.values()) results.push_back(exchange(value.detach().clone()));
    return values.with(std::move(results));
  }
  std::vector<torch::Tensor> flat;
  for (const auto& value : values.values()) flat.push_back(value.detach().reshape({-1}));
  const auto all = exchange(at::cat(flat));
  int64_t offset = 0;
  for (const auto& value : values.values()) {
    results.push_back(all.narrow(0, offset, value.numel()).view(value.sizes()));
    offset += value.numel();
  }
  return values.with(std::move(results));
}

}  // namespace

std::shared_ptr<ProcessGroup> processes() { return ProcessGroup::of_this_run(kTimeout); }

Params pmean(const Params& values) {
  const auto group = processes();
  if (!group) return values;
  return exchanged(values, [&](torch::Tensor all) {
    group->sum(all);
    return all.div_(double(group->size()));
  });
}

torch::Tensor pmean(const torch::Tensor& value) {
  const auto group = processes();
  if (!group) return value;
  const at::NoGradGuard no_grad;
  auto mean = value.detach().clone(at::MemoryFormat::Contiguous);
  group->sum(mean);
  return mean.div_(double(group->size()));
}

Key shared_key(Key key, ProcessGroup& group) {
  auto value = at::tensor({std::bit_cast<int64_t>(key.value())}, at::kLong);
  group.broadcast(value);
  return Key(std::bit_cast<uint64_t>(value.item<int64_t>()));
}

TrainState replicated(TrainState state, ProcessGroup& group) {
  state.params = exchanged(state.params, [&](torch::Tensor all) {
    group.broadcast(all);
    return all;
  });
  state.key = shared_key(state.key, group);
  return state;
}

void require_replicas(const TrainState& state, ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  std::vector<torch::Tensor> sums;
  for (const auto& value : state.params.values()) sums.push_back(value.sum(at::kDouble));
  const auto own = at::stack(sums);
  const auto all = group.gather(own);
  for (size_t other = 1; other < all.size(); ++other) {
    const auto same = all[other].eq(all[0]).logical_or(all[other].isnan());
    if (same.all().item<bool>()) continue;
    const auto first = same.logical_not().nonzero()[0].item<int64_t>();
    throw Error(
        "G-DIST-5", ErrorKind::training,
        "the processes have trained different values of " + state.params.names()[size_t(first)] +
            ": process 0 and process " + std::to_string(other),
        "A step that does not compute its gradients with functional::value_and_grad must take "
        "functional::pmean of them.");
  }
}

}  // namespace gradus::functional
