#include "train/rows_of_batches.h"

#include <gradus/device/runtime.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace gradus {
namespace {

constexpr int64_t kMostRows = 64;

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
    // A sampler may have more rows than the data set: completions of one prompt are several.
    const int64_t begin = first * options->batch_size;
    const int64_t wanted = std::clamp<int64_t>(count * options->batch_size, 0, kMostRows);
    const auto reach = [&](int64_t size) { return std::clamp<int64_t>(size - begin, 0, wanted); };
    if (options->sampler) {
      const auto state = device::get_cpu_rng_state();
      const auto order = options->sampler->open(epoch);
      const bool is_drawn = !order->state().is_null();  // from the run's own generator
      device::set_cpu_rng_state(state);
      if (is_drawn) return {};
      rows.resize(size_t(reach(order->size())));
      if (!rows.empty()) order->read(begin, rows);
    } else {
      rows.resize(size_t(reach(options->dataset.size().value_or(begin + wanted))));
      std::iota(rows.begin(), rows.end(), begin);
    }
  }
  if (rows.size() > size_t(kMostRows)) rows.resize(size_t(kMostRows));
  return rows;
}

}  // namespace gradus
