#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <vector>

namespace gradus::data {

/// `numpy.random.default_rng(seed)`: PCG64 seeded through SeedSequence. The orders of the
/// `datasets` package come from it.
class NumpyRandom {
 public:
  explicit NumpyRandom(uint64_t seed);

  uint64_t next64();
  uint32_t next32();  ///< the halves of one 64-bit number, low one first
  /// A double in [0, 1), as `Generator.random()`.
  double uniform();
  /// In [0, most], as numpy's shuffles draw it.
  uint64_t bounded(uint64_t most);
  /// `Generator.permutation(count)`.
  std::vector<int64_t> permutation(int64_t count);

  nlohmann::json save_state() const;
  void load_state(const nlohmann::json& state);

 private:
  using Wide = unsigned __int128;
  void step();

  Wide state_ = 0;
  Wide increment_ = 0;
  bool has_half_ = false;
  uint32_t half_ = 0;
};

}  // namespace gradus::data
