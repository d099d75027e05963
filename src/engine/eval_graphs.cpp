#include "engine/eval_graphs.h"

#include <gradus/core/log.h>

#include <algorithm>

#include "engine/recorded_batch.h"

namespace gradus {
namespace {

constexpr size_t kMostEvalGraphs = 32;
constexpr int64_t kMostOutputBytes = int64_t{64} << 20;

int64_t bytes_of(const ModelOutput& outputs) {
  int64_t bytes = 0;
  for (const auto& [name, value] : outputs)
    if (value.defined()) bytes += int64_t(value.nbytes());
  return bytes;
}

ModelOutput copy_of(const ModelOutput& outputs) {
  ModelOutput copy;
  for (const auto& [name, value] : outputs) copy.set(name, value.defined() ? value.clone() : value);
  return copy;
}

}  // namespace

ModelOutput EvalGraphs::run(const Batch& inputs, const std::string& kind, const Work& work) {
  const auto key = kind + shape_text(inputs);
  auto found = std::find_if(entries_.begin(), entries_.end(),
                            [&](const auto& each) { return each.first == key; });
  if (given_up_ || (found == entries_.end() && entries_.size() >= kMostEvalGraphs))
    return work(inputs);
  if (found == entries_.end()) {
    auto outputs = work(inputs);
    entries_.emplace_back(key, Entry());
    entries_.back().second.plain = bytes_of(outputs) > kMostOutputBytes;
    return outputs;
  }
  auto& entry = found->second;
  if (entry.plain) return work(inputs);
  if (!entry.graph) {
    entry.inputs = clone_of(inputs);
    try {
      entry.graph = device::capture([&] { entry.outputs = work(entry.inputs); });
    } catch (const std::exception& error) {
      given_up_ = true;
      entries_.clear();
      log_info(std::string("Evaluation is not recorded as CUDA graphs: ") + error.what());
      return work(inputs);
    }
  }
  for (const auto& [name, value] : inputs)
    if (value.defined()) entry.inputs[name].copy_(value, /*non_blocking=*/true);
  entry.graph->replay();
  return copy_of(entry.outputs);
}

}  // namespace gradus
