#include "data/numpy_random.h"

#include <nlohmann/json.hpp>

#include <array>
#include <bit>
#include <numeric>

namespace gradus::data {
namespace {

/// numpy's SeedSequence for a seed of up to 64 bits: spreads it over a pool of four words and draws
/// eight from that.
class SeedPool {
 public:
  explicit SeedPool(uint64_t seed) {
    const std::array<uint32_t, 4> entropy{static_cast<uint32_t>(seed),
                                          static_cast<uint32_t>(seed >> 32), 0, 0};
    for (size_t i = 0; i < 4; ++i) pool_[i] = hash(entropy[i]);
    for (size_t from = 0; from < 4; ++from) {
      for (size_t to = 0; to < 4; ++to) {
        if (from != to) pool_[to] = mix(pool_[to], hash(pool_[from]));
      }
    }
  }

  std::array<uint64_t, 4> words() const {
    std::array<uint64_t, 4> result{};
    uint32_t factor = 0x8b51f9dd;
    for (size_t i = 0; i < 8; ++i) {
      uint32_t value = pool_[i % 4] ^ factor;
      factor *= 0x58f38ded;
      value *= factor;
      value ^= value >> 16;
      result[i / 2] |= static_cast<uint64_t>(value) << (i % 2 * 32);
    }
    return result;
  }

 private:
  uint32_t hash(uint32_t value) {
    value ^= factor_;
    factor_ *= 0x931e8875;
    value *= factor_;
    return value ^ (value >> 16);
  }
  static uint32_t mix(uint32_t a, uint32_t b) {
    const uint32_t value = 0xca01f9dd * a - 0x4973f715 * b;
    return value ^ (value >> 16);
  }

  uint32_t factor_ = 0x43b0d7e5;
  std::array<uint32_t, 4> pool_{};
};

}  // namespace

NumpyRandom::NumpyRandom(uint64_t seed) {
  const auto words = SeedPool(seed).words();
  increment_ = (((static_cast<Wide>(words[2]) << 64) | words[3]) << 1) | 1;
  step();
  state_ += (static_cast<Wide>(words[0]) << 64) | words[1];
  step();
}

void NumpyRandom::step() {
  constexpr Wide kFactor = (static_cast<Wide>(0x2360ED051FC65DA4u) << 64) | 0x4385DF649FCCF645u;
  state_ = state_ * kFactor + increment_;
}

uint64_t NumpyRandom::next64() {
  step();
  const auto high = static_cast<uint64_t>(state_ >> 64);
  return std::rotr(high ^ static_cast<uint64_t>(state_), static_cast<int>(high >> 58));
}

uint32_t NumpyRandom::next32() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const uint64_t value = next64();
  has_half_ = true;
  half_ = static_cast<uint32_t>(value >> 32);
  return static_cast<uint32_t>(value);
}

double NumpyRandom::uniform() {
  return static_cast<double>(next64() >> 11) * (1.0 / 9007199254740992.0);
}

uint64_t NumpyRandom::bounded(uint64_t most) {
  if (most == 0) return 0;
  const uint64_t mask = ~uint64_t{0} >> std::countl_zero(most);
  while (true) {  // draws again what is too large
    const uint64_t value = (most <= UINT32_MAX ? next32() : next64()) & mask;
    if (value <= most) return value;
  }
}

std::vector<int64_t> NumpyRandom::permutation(int64_t count) {
  std::vector<int64_t> result(static_cast<size_t>(count));
  std::iota(result.begin(), result.end(), int64_t{0});
  for (int64_t i = count - 1; i > 0; --i)
    std::swap(result[static_cast<size_t>(i)],
              result[static_cast<size_t>(bounded(static_cast<uint64_t>(i)))]);
  return result;
}

nlohmann::json NumpyRandom::save_state() const {
  return {static_cast<uint64_t>(state_ >> 64),
          static_cast<uint64_t>(state_),
          static_cast<uint64_t>(increment_ >> 64),
          static_cast<uint64_t>(increment_),
          has_half_,
          half_};
}

void NumpyRandom::load_state(const nlohmann::json& state) {
  state_ = (static_cast<Wide>(state.at(0).get<uint64_t>()) << 64) | state.at(1).get<uint64_t>();
  increment_ = (static_cast<Wide>(state.at(2).get<uint64_t>()) << 64) | state.at(3).get<uint64_t>();
  has_half_ = state.at(4).get<bool>();
  half_ = state.at(5).get<uint32_t>();
}

}  // namespace gradus::data
