#include "data/random_order.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <vector>

// These loops are written to be vectorised; on x86-64 a copy for newer processors is chosen when
// the library is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define GRADUS_VECTORISED __attribute__((optimize("O3"), target_clones("avx2", "default")))
#else
#define GRADUS_VECTORISED
#endif

namespace gradus::data {

TorchRandom::TorchRandom(uint64_t seed) {
  state_[0] = static_cast<uint32_t>(seed);
  for (uint32_t i = 1; i < kBlock; ++i)
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
}

GRADUS_VECTORISED void TorchRandom::refill() {
  constexpr int64_t kShift = 397;
  const auto twist = [](uint32_t high, uint32_t low) {
    const uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (y >> 1) ^ ((low & 1u) ? 0x9908b0dfu : 0u);
  };
  for (int64_t i = 0; i < kBlock - kShift; ++i)
    state_[i] = state_[i + kShift] ^ twist(state_[i], state_[i + 1]);
  for (int64_t i = kBlock - kShift; i < kBlock - 1; ++i)
    state_[i] = state_[i + kShift - kBlock] ^ twist(state_[i], state_[i + 1]);
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

IndexBuffer::IndexBuffer(int64_t size) : size_(static_cast<size_t>(size)) {
  constexpr size_t kLargePage = size_t{2} << 20;
  const size_t bytes = size_ * sizeof(int32_t);
  const size_t alignment = bytes >= kLargePage ? kLargePage : 64;
  memory_.reset(
      static_cast<int32_t*>(std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment)));
  if (!memory_) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (bytes >= kLargePage)
    madvise(memory_.get(), bytes, MADV_HUGEPAGE);  // only a wish: small pages work too
#endif
}

namespace {

/// Where the Fisher-Yates steps from `begin` on swap to: begin + i + numbers[i] % (rows - begin -
/// i).
GRADUS_VECTORISED void swap_targets(const uint32_t* numbers, int64_t rows, int64_t begin,
                                    int64_t count, int32_t* targets) {
  const auto left_at_begin = static_cast<int32_t>(rows - begin);
  const auto base = static_cast<int32_t>(begin);
  for (int32_t i = 0; i < static_cast<int32_t>(count); ++i) {
    // The quotient of two 32-bit integers, rounded to double, never reaches the next whole number:
    // cutting it is exact. It fits in 31 bits, for at least two rows are left.
    const auto left = static_cast<double>(left_at_begin - i);
    const auto number = static_cast<double>(static_cast<int32_t>(numbers[i] >> 1)) * 2.0 +
                        static_cast<double>(static_cast<int32_t>(numbers[i] & 1u));
    const auto quotient = static_cast<double>(static_cast<int32_t>(number / left));
    targets[i] = base + i + static_cast<int32_t>(number - quotient * left);
  }
}

}  // namespace

IndexBuffer random_order(int64_t rows, uint64_t seed) {
  constexpr int64_t kBlock = TorchRandom::kBlock;
  constexpr int64_t kAhead = 48;  // swaps between the request for a far cache line and its use
  IndexBuffer buffer(rows);
  const auto order = buffer.values();
  std::iota(order.begin(), order.end(), 0);
  TorchRandom random(seed);
  const int64_t steps = rows - 1;
  std::vector<int32_t> targets(2 * kBlock);  // of this block and the next one
  const auto prepare = [&](int64_t begin, int32_t* into) {
    const int64_t count = std::clamp<int64_t>(steps - begin, 0, kBlock);
    if (count > 0) swap_targets(random.next_block(), rows, begin, count, into);
    std::fill(into + count, into + kBlock, 0);
  };
  prepare(0, targets.data());
  for (int64_t begin = 0; begin < steps; begin += kBlock) {
    prepare(begin + kBlock, targets.data() + kBlock);
    const int64_t count = std::min(kBlock, steps - begin);
    for (int64_t i = 0; i < count; ++i) {
      __builtin_prefetch(order.data() + targets[static_cast<size_t>(i + kAhead)], 1);
      std::swap(order[static_cast<size_t>(begin + i)],
                order[static_cast<size_t>(targets[static_cast<size_t>(i)])]);
    }
    std::copy_n(targets.begin() + kBlock, kBlock, targets.begin());
  }
  return buffer;
}

}  // namespace gradus::data
