#pragma once

#include <cstdint>
#include <vector>

namespace gradus::functional {

/// A random key. Whatever draws random numbers is given one, and the same key always gives the same
/// numbers.
///
/// Use a key once and continue with `split()`. The numbers come from torch's generators, seeded
/// from the key, so they are not those of JAX.
class Key {
 public:
  /// A key from a number, as a seed is.
  constexpr explicit Key(uint64_t value = 0) : value_(value) {}

  /// The next key of the chain.
  Key split() const;
  /// `count` keys that differ from each other and from `split()`.
  std::vector<Key> split(int64_t count) const;
  /// A key made of this one and a number, for example of a layer or a rank.
  Key fold_in(uint64_t number) const;
  /// What torch's generators are seeded with.
  uint64_t seed() const;

  /// The number the key was made with; checkpoints hold it.
  constexpr uint64_t value() const { return value_; }
  /// Whether both give the same numbers.
  constexpr bool operator==(const Key&) const = default;

 private:
  uint64_t value_;
};

}  // namespace gradus::functional
