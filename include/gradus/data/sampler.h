#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace gradus {

/// The order of one pass, to be read from any place on.
class IndexOrder {
 public:
  virtual ~IndexOrder() = default;
  virtual int64_t size() const = 0;
  /// Fills `out` with the indices from place `first` on.
  virtual void read(int64_t first, std::span<int64_t> out) const = 0;
};

/// The order in which the rows of a map-style data set are visited: a pure function of the epoch.
///
/// Because it is pure, resuming needs no replay: the loader asks for the epoch's order and starts at its position.
/// Thread-safety: `order` is const and may be called from any thread.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// How many indices `order` gives.
  virtual int64_t size() const = 0;
  virtual std::vector<int64_t> order(int64_t epoch) const = 0;
  /// The same order in the form the loader reads it; override where it need not be written out in full.
  virtual std::shared_ptr<const IndexOrder> open(int64_t epoch) const;
};

/// 0, 1, 2, …
std::shared_ptr<Sampler> sequential_sampler(int64_t rows);

/// The peer's order, bit for bit: `torch.randperm(rows)` from a generator seeded with `seed + epoch`.
std::shared_ptr<Sampler> random_sampler(int64_t rows, int64_t seed);

}  // namespace gradus
