#include "optim/stochastic_rounding.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>

namespace gradus {
namespace {

constexpr int64_t k32Bits = 0xFFFFFFFF;

/// Every bit of a 64-bit number reaches all of the result (the end of MurmurHash3).
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDULL;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53ULL;
  return x ^ (x >> 33);
}

/// x ^= x >> shift, x *= factor, in 32 bits.
void mix_(torch::Tensor& x, int64_t shift, int64_t factor) {
  x.bitwise_xor_(x.bitwise_right_shift(shift)).mul_(factor).bitwise_and_(k32Bits);
}

}  // namespace

torch::Tensor rounded_by_chance(const torch::Tensor& numbers, const torch::Tensor& chances) {
  const auto bits = numbers.view(at::kInt);
  const auto towards_zero = bits.bitwise_and(int64_t(-65536));
  return at::where(chances < bits.bitwise_and(0xFFFF), towards_zero + 0x10000, towards_zero)
      .view(at::kFloat);
}

torch::Tensor scattered_bits(int64_t count, uint64_t seed, torch::Device device) {
  const auto start = mixed(seed);
  auto x = at::arange(count, torch::TensorOptions().dtype(at::kLong).device(device));
  x.bitwise_xor_(int64_t(start >> 32)).bitwise_and_(k32Bits);
  mix_(x, 16, 0x7FEB352D);
  x.bitwise_xor_(int64_t(start & 0xFFFFFFFF));
  mix_(x, 15, 0x46CA68B5);
  mix_(x, 16, 0x3C6EF373);
  return x.bitwise_xor_(x.bitwise_right_shift(15));
}

}  // namespace gradus
