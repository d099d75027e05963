#include "data/random_order.h"

#include <algorithm>
#include <numeric>

namespace gradus::data {

TorchRandom::TorchRandom(uint64_t seed) {
  state_[0] = static_cast<uint32_t>(seed);
  for (uint32_t i = 1; i < kBlock; ++i) state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
}

void TorchRandom::refill() {
  constexpr int64_t kShift = 397;
  const auto twist = [](uint32_t high, uint32_t low) {
    const uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (y >> 1) ^ ((low & 1u) ? 0x9908b0dfu : 0u);
  };
  for (int64_t i = 0; i < kBlock - kShift; ++i) state_[i] = state_[i + kShift] ^ twist(state_[i], state_[i + 1]);
  for (int64_t i = kBlock - kShift; i < kBlock - 1; ++i) state_[i] = state_[i + kShift - kBlock] ^ twist(state_[i], state_[i + 1]);
  state_[kBlock - 1] = state_[kShift - 1] ^ twist(state_[kBlock - 1], state_[0]);
  for (int64_t i = 0; i < kBlock; ++i) {
    uint32_t y = state_[i];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    block_[i] = y ^ (y >> 18);
  }
  used_ = 0;
}

std::vector<int32_t> random_order(int64_t rows, uint64_t seed) {
  constexpr int64_t kAhead = 24;  // swaps between the request for a far cache line and its use
  std::vector<int32_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  TorchRandom random(seed);
  int32_t target[TorchRandom::kBlock + kAhead] = {};
  for (int64_t begin = 0; begin < rows - 1; begin += TorchRandom::kBlock) {
    const int64_t count = std::min(TorchRandom::kBlock, rows - 1 - begin);
    const uint32_t* numbers = random.next_block();
    for (int64_t i = 0; i < count; ++i) {
      // number % left. The quotient of two 32-bit integers, rounded to double, never reaches the next whole number.
      const auto left = static_cast<double>(rows - begin - i);
      const auto number = static_cast<double>(numbers[i]);
      const auto quotient = static_cast<double>(static_cast<int64_t>(number / left));
      target[i] = static_cast<int32_t>(begin + i) + static_cast<int32_t>(number - quotient * left);
    }
    std::fill(target + count, target + count + kAhead, 0);
    for (int64_t i = 0; i < count; ++i) {
      __builtin_prefetch(&order[static_cast<size_t>(target[i + kAhead])], 1);
      std::swap(order[static_cast<size_t>(begin + i)], order[static_cast<size_t>(target[i])]);
    }
  }
  return order;
}

}  // namespace gradus::data
