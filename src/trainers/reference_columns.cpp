#include "trainers/reference_columns.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/data/cached_map.h>
#include <gradus/formats/checksum.h>

namespace gradus {
namespace {

uint32_t checksum_of_weights(const torch::nn::Module& module) {
  Crc32 sum;
  for (const auto& item : module.named_parameters()) {
    const auto values = item.value().detach().cpu().contiguous();
    sum.update(item.key().data(), item.key().size());
    sum.update(values.const_data_ptr(), values.nbytes());
  }
  return sum.value();
}

uint32_t checksum_of_rows(const Dataset& rows) {
  Crc32 sum;
  for (int64_t i = 0; i < rows.size(); ++i) {
    const auto row = rows.get(i);
    for (const auto& [name, value] : row) {
      sum.update(name.data(), name.size() + 1);
      if (!value.is_ints()) continue;
      const auto count = value.ints().size();
      sum.update(&count, sizeof(count));
      sum.update(value.ints().data(), count * sizeof(int64_t));
    }
  }
  return sum.value();
}

}  // namespace

DatasetRef with_reference_columns(const DatasetRef& rows, const ReferenceColumns& columns,
                                  const std::string& where) {
  const auto& source = *rows.map_style();
  if (source.get(0).contains(columns.names.front())) return rows;
  if (columns.reference == nullptr)
    throw Error("G-TRL-1", ErrorKind::usage,
                fmt::format("the reference's log probabilities of {} cannot be computed any more: "
                            "the reference was the model before training",
                            where),
                "Give the set to the constructor, give ref_model, or leave "
                "precompute_ref_log_probs out.");
  const auto add = [&](std::vector<Example> batch) {
    const auto values = columns.compute(batch);
    for (size_t column = 0; column < values.size(); ++column) {
      const auto numbers = values[column].detach().to(torch::kCPU, torch::kDouble).contiguous();
      for (size_t row = 0; row < batch.size(); ++row)
        batch[row].set(columns.names[column], numbers.const_data_ptr<double>()[row]);
    }
    return batch;
  };
  const auto key =
      fmt::format("reference-{:08x}-{:08x}-{:08x}-{}", checksum_of_weights(*columns.reference),
                  checksum_of_rows(source),
                  checksum_of(columns.settings.data(), columns.settings.size()), source.size());
  const auto all = [&] {
    return map_rows(source, add,
                    {.batch_size = columns.batch_size,
                     .threads = 1,
                     .cache_key = key,
                     .description = "reference log probabilities of " + where});
  };
  if (!columns.group) return DatasetRef(all());
  try {
    if (columns.group->rank() != 0) columns.group->barrier();
    auto made = all();
    if (columns.group->rank() == 0) columns.group->barrier();
    return DatasetRef(std::move(made));
  } catch (const std::exception& error) {
    columns.group->fail(error.what());
    throw;
  }
}

}  // namespace gradus
