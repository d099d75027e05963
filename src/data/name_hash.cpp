#include "data/name_hash.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>

namespace gradus::data {
namespace {

uint64_t random_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

/// The product of two 64-bit numbers, folded to 64 bits.
uint64_t folded_product(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return uint64_t(product) ^ uint64_t(product >> 64);
}

}  // namespace

size_t NameHash::operator()(std::string_view name) const {
  static const uint64_t seed = random_seed(), factor = random_seed() | 1;
  uint64_t hash = folded_product(name.size() ^ seed, factor);
  while (!name.empty()) {
    uint64_t piece = 0;
    const auto count = std::min(name.size(), sizeof piece);
    std::memcpy(&piece, name.data(), count);
    hash = folded_product(piece ^ hash ^ seed, factor);
    name.remove_prefix(count);
  }
  return size_t(hash);
}

}  // namespace gradus::data
