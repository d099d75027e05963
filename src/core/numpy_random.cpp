#include <gradus/core/error.h>
#include <gradus/core/numpy_random.h>

#include <bit>
#include <numeric>
#include <utility>

namespace gradus {

void NumpyRandomState::seed(uint64_t seed) {
  words_[0] = static_cast<uint32_t>(seed);
  for (uint32_t i = 1; i < kWords; ++i)
    words_[i] = 1812433253u * (words_[i - 1] ^ (words_[i - 1] >> 30)) + i;
  position_ = kWords;
  has_gauss_ = 0;
  gauss_ = 0.0;
}

void NumpyRandomState::refill() {
  constexpr size_t kShift = 397;
  for (size_t i = 0; i < kWords; ++i) {
    const uint32_t mixed = (words_[i] & 0x80000000u) | (words_[(i + 1) % kWords] & 0x7fffffffu);
    words_[i] = words_[(i + kShift) % kWords] ^ (mixed >> 1) ^ ((mixed & 1u) ? 0x9908b0dfu : 0u);
  }
  position_ = 0;
}

uint32_t NumpyRandomState::next() {
  if (position_ >= kWords) refill();
  uint32_t word = words_[position_++];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680u;
  word ^= (word << 15) & 0xefc60000u;
  return word ^ (word >> 18);
}

double NumpyRandomState::rand() {
  const double high = next() >> 5;
  const double low = next() >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

uint32_t NumpyRandomState::below_or_at(uint32_t most) {
  if (most == 0) return 0;
  const uint32_t mask = ~uint32_t{0} >> std::countl_zero(most);
  while (true) {  // draws again what is too large
    const uint32_t value = next() & mask;
    if (value <= most) return value;
  }
}

std::vector<int64_t> NumpyRandomState::permutation(int64_t count) {
  std::vector<int64_t> result(static_cast<size_t>(std::max<int64_t>(count, 0)));
  std::iota(result.begin(), result.end(), int64_t{0});
  for (int64_t i = count - 1; i > 0; --i)
    std::swap(result[static_cast<size_t>(i)], result[below_or_at(static_cast<uint32_t>(i))]);
  return result;
}

StateTree NumpyRandomState::state() const {
  std::vector<StateTree> items;
  for (const auto word : words_) items.emplace_back(int64_t{word});
  return StateTree::Tuple{{"MT19937", StateTree::List{std::move(items)},
                           static_cast<int64_t>(position_), has_gauss_, gauss_}};
}

void NumpyRandomState::load(const StateTree& state) {
  const auto fail = [] {
    throw Error("G-RNG-1", ErrorKind::checkpoint,
                "a random number state cannot be used: it is not what np.random.get_state() "
                "returns",
                "rng_state.pth was written by another program, or is damaged. Remove it to "
                "continue with fresh random numbers.");
  };
  if (!state.is_tuple() || state.items().size() != 5) fail();
  const auto& parts = state.items();
  const bool fits = parts[1].is_list() && parts[1].items().size() == kWords && parts[2].is_int() &&
                    parts[2].as_int() >= 0 && parts[2].as_int() <= int64_t(kWords) &&
                    parts[3].is_int();
  if (!fits) fail();
  for (size_t i = 0; i < kWords; ++i) {
    const auto& word = parts[1].items()[i];
    if (!word.is_int() || word.as_int() < 0 || word.as_int() > 0xFFFFFFFFll) fail();
    words_[i] = static_cast<uint32_t>(word.as_int());
  }
  position_ = static_cast<size_t>(parts[2].as_int());
  has_gauss_ = parts[3].as_int();
  gauss_ = parts[4].is_double() ? parts[4].as_double() : 0.0;
}

NumpyRandomState& numpy_random() {
  static NumpyRandomState instance;
  return instance;
}

}  // namespace gradus
