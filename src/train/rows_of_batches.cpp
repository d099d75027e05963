#include "train/rows_of_batches.h"

#include <gradus/device/runtime.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gradus {
namespace {

constexpr size_t kMostRows = 64;

}  // namespace

std::vector<int64_t> rows_of_batches(const DataLoader& loader, int64_t epoch, int64_t first,
                                     int64_t count, int64_t batches_in_epoch) {
  const auto* options = loader.options();
  if (options == nullptr || options->shard.world > 1) return {};
  count = std::min(count, batches_in_epoch - first);
  std::vector<int64_t> rows;
  if (options->batch_sampler) {
    const auto order = options->batch_sampler->open(epoch);
    for (int64_t batch = first; batch < first + count; ++batch) {
      std::vector<int64_t> indices;
      order->read(batch, indices);
      rows.insert(rows.end(), indices.begin(), indices.end());
    }
  } else {
    const auto size = options->dataset.size();
    const int64_t begin = first * options->batch_size;
    int64_t end = begin + count * options->batch_size;
    if (size) end = std::min(end, *size);
    for (int64_t row = begin; row < end; ++row) rows.push_back(row);
    if (options->sampler) {
      const auto state = device::get_cpu_rng_state();
      const auto order = options->sampler->open(epoch);
      const bool is_drawn = !order->state().is_null();  // from the run's own generator
      device::set_cpu_rng_state(state);
      if (is_drawn || begin >= order->size()) return {};
      rows.resize(size_t(std::min(end, order->size()) - begin));
      order->read(begin, rows);
    }
  }
  if (rows.size() > kMostRows) rows.resize(kMostRows);
  return rows;
}

}  // namespace gradus
