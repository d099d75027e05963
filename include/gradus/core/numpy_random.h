#pragma once

#include <gradus/core/state_tree.h>

#include <array>
#include <cstdint>
#include <vector>

namespace gradus {

/// The generator behind `numpy.random.seed`, `rand`, `choice`, `permutation` and `randint`: a
/// Mersenne twister with numpy's own way of making numbers of its words.
///
/// transformers draws SpecAugment's masks and the negatives of wav2vec 2.0 from it. With the same
/// seed and the same calls the numbers are the same. Thread-safety: none.
class NumpyRandomState {
 public:
  /// The generator after `numpy.random.seed(seed % 2**32)`.
  explicit NumpyRandomState(uint64_t seed = 0) { this->seed(seed); }
  /// Starts anew from a seed.
  void seed(uint64_t seed);

  /// The next word of the twister.
  uint32_t next();
  /// A double in [0, 1), as `numpy.random.rand()`.
  double rand();
  /// An integer in [0, most], as `randint(0, most + 1)` and the shuffles draw it. `most` is below
  /// 2^32.
  uint32_t below_or_at(uint32_t most);
  /// `numpy.random.permutation(count)`.
  std::vector<int64_t> permutation(int64_t count);

  /// What `numpy.random.get_state()` returns: ("MT19937", 624 words, position, has_gauss, gauss).
  StateTree state() const;
  /// Takes over such a state. Throws `Error` G-RNG-1 for anything else.
  void load(const StateTree& state);

 private:
  static constexpr size_t kWords = 624;
  void refill();

  std::array<uint32_t, kWords> words_{};
  size_t position_ = kWords;
  int64_t has_gauss_ = 0;  ///< Kept for Python; nothing here draws normal numbers from it.
  double gauss_ = 0.0;
};

/// The generator of this process, which stands for Python's `numpy.random`. A trainer seeds it with
/// torch's generators and keeps its state in rng_state.pth. Used by the training thread only.
NumpyRandomState& numpy_random();

}  // namespace gradus
