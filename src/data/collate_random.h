#pragma once

#include <gradus/data/data_loader.h>

#include <ATen/CPUGeneratorImpl.h>

namespace gradus::data {

/// The seed for the batch being collated: a function of (seed, epoch, batch), and `seed` itself for
/// the first of all.
inline uint64_t batch_seed(std::optional<int64_t> seed) {
  const auto& context = collate_context();
  const auto epoch = static_cast<uint64_t>(context.epoch);
  const auto batch = static_cast<uint64_t>(context.batch_index);
  // Torch's generator takes the low 32 bits; odd factors keep neighbouring epochs and batches apart
  // in them.
  return static_cast<uint64_t>(seed.value_or(context.seed)) + epoch * 0x9E3779B1u +
         batch * 0x85EBCA77u;
}

inline at::Generator batch_generator(std::optional<int64_t> seed) {
  return at::detail::createCPUGenerator(batch_seed(seed));
}

}  // namespace gradus::data
