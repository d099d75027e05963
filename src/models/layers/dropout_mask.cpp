#include "models/layers/dropout_mask.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <mutex>

namespace gradus::layers {

using torch::Tensor;

namespace {

constexpr int kWords = 624, kAhead = 397;  // the Mersenne Twister's state, and how far it looks
constexpr int kTogether = 16;
constexpr uint32_t kHighBits = 0x1fffff;  // 21 bits of the first word and 32 of the second
/// Sixteen words that the compiler treats together, and the same anywhere in memory.
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint32_t WordInMemory __attribute__((may_alias));
typedef uint32_t WordsInMemory __attribute__((vector_size(64), aligned(4), may_alias));

__attribute__((always_inline)) inline WordsInMemory& words_at(uint32_t* first) {
  return *reinterpret_cast<WordsInMemory*>(first);
}

/// One step of the recurrence, for a word or for sixteen.
template <class Word>
__attribute__((always_inline)) inline void renew(Word& word, const Word& next, const Word& ahead) {
  const Word mixed = (word & 0x80000000U) | (next & 0x7fffffffU);
  word = ahead ^ (mixed >> 1) ^ ((0U - (next & 1U)) & 0x9908b0dfU);
}

/// Renews the words `begin` to `end` - 1; `offset` leads to the word that each is joined with.
__attribute__((always_inline)) inline void renew_range(uint32_t* state, int begin, int end,
                                                       int offset) {
  int i = begin;
  for (; i + kTogether <= end; i += kTogether) {
    Words word = words_at(state + i);
    const Words next = words_at(state + i + 1), ahead = words_at(state + i + offset);
    renew(word, next, ahead);
    words_at(state + i) = word;
  }
  for (; i < end; ++i) renew(state[i], state[i + 1], state[i + offset]);
}

__attribute__((always_inline)) inline void renew_all(uint32_t* state) {
  renew_range(state, 0, kWords - kAhead, kAhead);
  renew_range(state, kWords - kAhead, kWords - 1, kAhead - kWords);
  renew(state[kWords - 1], state[0], state[kAhead - 1]);
}

template <class Word>
__attribute__((always_inline)) inline void temper(Word& word) {
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680U;
  word ^= (word << 15) & 0xefc60000U;
  word ^= word >> 18;
}

/// The next words of the generator, `kWords` at most; returns their number.
__attribute__((always_inline)) inline int next_words(at::mt19937_data_pod& data, uint32_t* words,
                                                     int most) {
  // ATen counts down to 1 before it renews the words.
  if (data.left_ <= 1) {
    renew_all(data.state_.data());
    data.left_ = kWords + 1;
    data.next_ = 0;
  }
  const int count = std::min(most, data.left_ - 1);
  std::copy_n(data.state_.data() + data.next_, count, words);
  data.left_ -= count;
  data.next_ += static_cast<uint32_t>(count);
  int i = 0;
  for (; i + kTogether <= count; i += kTogether) {
    Words together = words_at(words + i);
    temper(together);
    words_at(words + i) = together;
  }
  for (; i < count; ++i) temper(words[i]);
  return count;
}

/// ATen makes a number of 53 bits of two words and compares it with the probability.
struct Draw {
  uint32_t high, low;  ///< the two halves of a number; those below it count
  uint32_t value;      ///< the bits of what is then written, otherwise 0
};

/// What is written for the number (high, low): `how.value` where subtracting the limit borrows.
/// There are no comparisons, because compilers take those of many words apart.
template <class Word>
__attribute__((always_inline)) inline void choose(Word& high, const Word& low, const Draw& how) {
  const Word borrow = ((~low & how.low) | ((~low | how.low) & (low - how.low))) >> 31;
  high = (0U - (((high & kHighBits) - how.high - borrow) >> 31)) & how.value;
}

/// One number for each pair of words.
__attribute__((always_inline)) inline void write_numbers(uint32_t* words, int pairs,
                                                         const Draw& how, float* to) {
  auto* out = reinterpret_cast<WordInMemory*>(to);
  int i = 0;
  for (; i + kTogether <= pairs; i += kTogether) {
    const Words first = words_at(words + 2 * i), second = words_at(words + 2 * i + kTogether);
    Words high = __builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22,
                                         24, 26, 28, 30);
    const Words low = __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21,
                                              23, 25, 27, 29, 31);
    choose(high, low, how);
    *reinterpret_cast<WordsInMemory*>(out + i) = high;
  }
  for (; i < pairs; ++i) {
    choose(words[2 * i], words[2 * i + 1], how);
    out[i] = words[2 * i];
  }
}

__attribute__((always_inline)) inline void draw(at::mt19937_data_pod& data, const Draw& how,
                                                float* out, int64_t count) {
  std::array<uint32_t, kWords + 1> words;  // one may be left from before
  int held = 0;
  while (count > 0) {
    const auto wanted = std::min<int64_t>(2 * count - held, kWords);
    held += next_words(data, words.data() + held, static_cast<int>(wanted));
    const int pairs = held / 2;
    write_numbers(words.data(), pairs, how, out);
    out += pairs;
    count -= pairs;
    if (held % 2 == 1) words[0] = words[static_cast<size_t>(held) - 1];
    held %= 2;
  }
}

using DrawForm = void (*)(at::mt19937_data_pod&, const Draw&, float*, int64_t);

void draw_plainly(at::mt19937_data_pod& data, const Draw& how, float* out, int64_t count) {
  draw(data, how, out, count);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void draw_avx2(at::mt19937_data_pod& data, const Draw& how,
                                               float* out, int64_t count) {
  draw(data, how, out, count);
}

__attribute__((target("avx512f"))) void draw_avx512(at::mt19937_data_pod& data, const Draw& how,
                                                    float* out, int64_t count) {
  draw(data, how, out, count);
}

DrawForm fastest_draw() {
  if (__builtin_cpu_supports("avx512f")) return draw_avx512;
  return __builtin_cpu_supports("avx2") ? draw_avx2 : draw_plainly;
}
#else
DrawForm fastest_draw() { return draw_plainly; }
#endif

void fill(const Tensor& mask, double p, at::CPUGeneratorImpl& generator) {
  static const auto form = fastest_draw();
  const auto kept = 1.0 - p;
  const auto limit = static_cast<uint64_t>(std::ceil(std::ldexp(kept, 53)));
  const Draw how{static_cast<uint32_t>(limit >> 32), static_cast<uint32_t>(limit),
                 std::bit_cast<uint32_t>(1.0F / static_cast<float>(kept))};
  const std::lock_guard lock(generator.mutex_);
  auto engine = generator.engine();
  auto data = engine.data();
  form(data, how, mask.mutable_data_ptr<float>(), mask.numel());
  engine.set_data(data);
  generator.set_engine(engine);
}

/// Draws with both and compares, twice: the second time begins in the middle of the words.
bool draws_like_aten() {
  auto ours = at::detail::createCPUGenerator(7), theirs = at::detail::createCPUGenerator(7);
  for (const double p : {0.1, 0.37}) {
    const auto mask = at::empty({1501}, torch::kFloat), drawn = at::empty({1501}, torch::kFloat);
    fill(mask, p, *at::check_generator<at::CPUGeneratorImpl>(ours));
    drawn.bernoulli_(1.0 - p, theirs).div_(1.0 - p);
    if (!at::equal(mask, drawn) || !at::equal(ours.get_state(), theirs.get_state())) return false;
  }
  return true;
}

}  // namespace

bool dropout_mask_equals_aten() {
  static const bool answer = draws_like_aten();
  return answer;
}

Tensor dropout_mask(const Tensor& x, double p) {
  // The memory is filled in its order, whatever the strides are: so does ATen.
  auto mask = at::empty_like(x.detach());
  auto generator = at::detail::getDefaultCPUGenerator();
  fill(mask, p, *at::check_generator<at::CPUGeneratorImpl>(generator));
  return mask;
}

}  // namespace gradus::layers
